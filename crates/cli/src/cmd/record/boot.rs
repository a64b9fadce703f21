//! `seekless record --boot`, and its installation into an initramfs.

use super::{RecordArgs, Wanted, WantedReadAhead};
use crate::args::Global;
use crate::detached::detach;
use crate::failure::Failure;
use crate::say::say;
use clap::{Args, Parser};
use seekless_capture::boot::{Boot, Until};
use seekless_capture::install::{self, Tool};
use seekless_capture::{self as recording, Subject};
use seekless_host::mounts::Mount;
use seekless_images::output::directory_of;
use seekless_lab::age::distribution::parse_span;
use seekless_units::{ByteLen, format_size};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Default path of a boot's trace.
pub(super) const TRACE: &str = "/var/lib/seekless/boot.trace";

/// Recording a boot.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options for a boot")]
pub(super) struct BootArgs {
    /// Record the boot of this system, in the background: started in an
    /// initramfs, from before the root is switched (--mount: where it is mounted)
    #[arg(long, conflicts_with_all = ["pid", "boot_unit", "command"], group = "booted")]
    pub(super) boot: bool,
    /// End when this systemd unit is active. Without any --until option:
    /// default.target, then idle for 5s, at most 10min
    #[arg(long, value_name = "UNIT", requires = "booted")]
    until_unit: Option<String>,
    /// End when nothing has been read from the device for this time; with
    /// --until-unit, since the unit is active
    #[arg(long, value_name = "TIME", value_parser = parse_wait, requires = "booted")]
    until_idle: Option<Duration>,
    /// End after this time in any case [default: 10min]
    #[arg(long, value_name = "TIME", value_parser = parse_wait, requires = "booted")]
    until_time: Option<Duration>,
    /// Install a hook that records each boot; options of the recorder follow `--`
    #[arg(long, conflicts_with_all = ["boot", "pid", "boot_unit", "remove_boot", "output"],
          group = "installed")]
    install_boot: bool,
    /// Remove that hook, and the recorder
    #[arg(long, conflicts_with_all = ["boot", "pid", "boot_unit", "command", "output"])]
    remove_boot: bool,
    /// What makes the initramfs [default: the one that is installed]
    #[arg(long, value_name = "TOOL", value_enum, requires = "installed")]
    initramfs: Option<ToolArg>,
    /// The program to install [default: this one, or one of this version that `make static` has
    /// made beside it or that is installed, if it is static]
    #[arg(long, value_name = "FILE", requires = "installed")]
    recorder: Option<PathBuf>,
    /// Install into (remove from) the system in this directory, which is not the
    /// running one
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Do not make the initramfs anew
    #[arg(long)]
    no_rebuild: bool,
    /// This process is the one in the background
    #[arg(long, hide = true, requires = "booted")]
    detached: bool,
}

impl BootArgs {
    /// Installs or removes the hook, or starts the recorder in the background, and returns the exit
    /// code; `None` if this process has to record.
    pub(super) fn run(
        &self,
        args: &RecordArgs,
        global: &Global,
    ) -> Result<Option<ExitCode>, Failure> {
        if self.install_boot {
            return self.install(args, global).map(Some);
        }
        if self.remove_boot {
            return self.remove(global).map(Some);
        }
        if self.root != Path::new("/") || self.no_rebuild {
            return Err(Failure::usage(
                "--root and --no-rebuild need --install-boot or --remove-boot",
            ));
        }
        if !self.boot {
            return Ok(None);
        }
        self.check(args)?;
        if self.detached {
            seekless_host::initramfs::leave_control_group();
            return Ok(None);
        }
        detach(recording::is_stdout(args.destination())).map(Some)
    }

    /// Refuses options that a recording of a boot does not support.
    fn check(&self, args: &RecordArgs) -> Result<(), Failure> {
        if args.source == Wanted::Fanotify {
            return Err(Failure::usage("--boot needs --source tracefs"));
        }
        if !matches!(args.read_ahead, None | Some(WantedReadAhead(None))) {
            return Err(Failure::usage("--boot records with the read-ahead of the device"));
        }
        let to = args.destination();
        if !to.is_absolute() && !recording::is_stdout(to) {
            let message = format!("{}: --boot needs an absolute path", to.display());
            return Err(Failure::usage(message));
        }
        Ok(())
    }

    /// The end of the recording.
    pub(super) fn subject(&self, mount: &Mount) -> Result<Subject, Failure> {
        let until = Until::new(self.until_unit.as_deref(), self.until_idle, self.until_time);
        Ok(Subject::Boot(Box::new(Boot::new(until, mount, self.detached)?)))
    }

    fn install(&self, args: &RecordArgs, global: &Global) -> Result<ExitCode, Failure> {
        let options = recorder_options(args)?;
        let tool = install::tool_of(&self.root, self.initramfs.map(Into::into))?;
        let (path, program) = self.recorder()?;
        let installed = install::install(&self.root, tool, &program, &options)?;
        let files = installed.files.clone();
        let rebuilt = match self.rebuild(tool) {
            Ok(rebuilt) => rebuilt,
            Err(failure) => {
                installed.undo();
                return Err(failure.hint("nothing is installed; --no-rebuild leaves this step out"));
            }
        };
        if install::is_static(&program) == Some(false) {
            crate::say::warning!(
                "{}: not static: its libraries are copied into the initramfs as well",
                path.display(),
            );
        }
        if !global.json {
            say!("the recorder is a copy of {}", path.display());
        }
        show(global, "installed", tool, &files, rebuilt, self.no_rebuild);
        Ok(ExitCode::SUCCESS)
    }

    /// The program to install, with its path.
    fn recorder(&self) -> Result<(PathBuf, Vec<u8>), Failure> {
        let path = match &self.recorder {
            Some(path) => path.clone(),
            None => {
                let itself = std::env::current_exe();
                let itself = itself.map_err(|error| Failure::io("this program", &error))?;
                let version = concat!("seekless ", env!("CARGO_PKG_VERSION"));
                install::static_program(&itself, version).ok_or_else(|| {
                    let size = itself.metadata().map_or(0, |file| file.len());
                    let size = format_size(ByteLen::new(size));
                    Failure::usage(format!(
                        "this program ({size}) is not static: an initramfs would get its libraries \
                         as well"
                    ))
                    .hint("`make static` builds one that needs none: give it with --recorder")
                })?
            }
        };
        let program = fs::read(&path).map_err(|error| Failure::io(path.display(), &error))?;
        if install::is_static(&program).is_none() {
            return Err(Failure::usage(format!("{}: not a program", path.display())));
        }
        Ok((path, program))
    }

    fn remove(&self, global: &Global) -> Result<ExitCode, Failure> {
        let (tool, files) = install::remove(&self.root)?;
        let rebuilt = self
            .rebuild(tool)
            .map_err(|failure| failure.hint("the files are removed, but the initramfs has them"))?;
        show(global, "removed", tool, &files, rebuilt, self.no_rebuild);
        Ok(ExitCode::SUCCESS)
    }

    fn rebuild(&self, tool: Tool) -> Result<bool, Failure> {
        if self.no_rebuild { Ok(false) } else { Ok(install::rebuild(&self.root, tool)?) }
    }
}

/// Creates the directory of the default path; a path given with `-o` must have one.
pub(super) fn make_directory(args: &RecordArgs) -> Result<(), Failure> {
    if args.output.is_some() {
        return Ok(());
    }
    let dir = directory_of(args.destination());
    fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), &error))
}

// The command line of the recorder in an initramfs.
#[derive(Parser)]
#[command(disable_help_flag = true)]
struct Recorder {
    #[command(flatten)]
    _global: Global,
    #[command(flatten)]
    record: RecordArgs,
}

/// The options after `--`. They are validated here as options of `record --boot`, since an error in
/// an initramfs would go unnoticed.
fn recorder_options(args: &RecordArgs) -> Result<Vec<String>, Failure> {
    let mut options = Vec::new();
    for option in &args.command {
        let text = option.to_str().filter(|text| !text.contains('\n'));
        options.push(text.ok_or_else(|| {
            Failure::usage(format!("{}: not one line of UTF-8", option.to_string_lossy()))
        })?);
    }
    let begin = ["seekless", "--boot", "--mount", "/"];
    let recorder = Recorder::try_parse_from(begin.iter().chain(&options)).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::usage(format!("options of the recorder: {line}"))
    })?;
    let inner = &recorder.record;
    inner.boot.check(inner)?;
    if recording::is_stdout(inner.destination()) {
        return Err(Failure::usage("options of the recorder: an initramfs has no standard output"));
    }
    Ok(options.into_iter().map(String::from).collect())
}

fn show(global: &Global, done: &str, tool: Tool, files: &[PathBuf], rebuilt: bool, unwanted: bool) {
    if global.json {
        let files: Vec<_> = files.iter().map(|path| path.to_string_lossy()).collect();
        say!("{}", json!({ "tool": tool.name(), done: files, "rebuilt": rebuilt }));
        return;
    }
    for path in files {
        say!("{done} {}", path.display());
    }
    if rebuilt {
        say!("the initramfs was made anew by {}", tool.name());
    } else if !unwanted {
        crate::say::warning!(
            "the system has no program of {} to make the initramfs anew",
            tool.name()
        );
    }
}

/// Parses a time as a [`Duration`].
fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_span(text).map(|span| Duration::from_nanos(span.get()))
}

/// Maker of the initramfs.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum ToolArg {
    /// Debian's initramfs-tools
    InitramfsTools,
    /// dracut
    Dracut,
}

impl From<ToolArg> for Tool {
    fn from(arg: ToolArg) -> Self {
        match arg {
            ToolArg::InitramfsTools => Self::InitramfsTools,
            ToolArg::Dracut => Self::Dracut,
        }
    }
}
