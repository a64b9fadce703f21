//! The command that serves a modelled disk to a testbed.

use seekless_images::Error;
use seekless_serve::testbed::ServedDisk;
use std::path::Path;
use std::process::Command;

/// Parameters of the disk.
pub(crate) struct ModelledDisk<'a> {
    pub(crate) model: &'a str,
    pub(crate) realtime: bool,
    pub(crate) io_log: Option<&'a Path>,
}

impl ModelledDisk<'_> {
    /// This program, with the arguments of `seekless disk`.
    pub(crate) fn command(&self, disk: &ServedDisk<'_>) -> Result<Command, Error> {
        let program = std::env::current_exe().map_err(|error| Error::io("seekless", &error))?;
        let mut command = Command::new(program);
        command.arg("disk").arg(disk.image).arg(disk.dir);
        command.args(["--model", self.model, "--title", disk.title, "--settle"]).arg(disk.settle);
        if self.realtime {
            command.arg("--realtime");
        }
        if let Some(log) = self.io_log {
            command.arg("--io-log").arg(log);
        }
        Ok(command)
    }
}
