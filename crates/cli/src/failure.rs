//! Failures of commands: a message, and an exit code for each kind.

use crate::say;
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use seekless_host::HostError;
use seekless_images::Error;
use seekless_partition::TableError;
use std::fmt;
use std::io;
use std::process::ExitCode;

pub(crate) use seekless_images::ErrorKind as Kind;

/// The exit code of a kind.
fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => 2,
        Kind::Corrupt => 3,
        Kind::Unsupported => 4,
        Kind::NoSpace => 5,
        Kind::System => 6,
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Usage => "usage",
        Kind::Corrupt => "corrupt",
        Kind::Unsupported => "unsupported",
        Kind::NoSpace => "no-space",
        Kind::System => "system",
    }
}

/// The option or command that stands for a term.
fn option(term: Term) -> &'static str {
    match term {
        Term::Force => "--force",
        Term::Offset => "--offset",
        Term::Partition => "--partition",
        Term::IgnoreChecksums => "--ignore-checksums",
        Term::FormatOption("lost") => "--lost",
        Term::FormatOption(name) => name,
        Term::Tag => "--tag",
        Term::Platform => "--platform",
        Term::BuildOfStream => "seekless build -",
        Term::Repair => "seekless check -y",
        Term::Preen => "seekless check -p",
        Term::ForcedMount => "-o force",
        Term::Drop => "--drop",
        Term::DropXattrs => "--drop-xattrs",
        Term::Owner => "--owner",
        Term::Tracing => "record, mount --record and trace import",
        Term::Mount => "--mount",
        Term::EventSource => "--source",
        Term::InitramfsTool => "--initramfs",
        Term::RemovalFromBoot => "--remove-boot",
        Term::Chroot => "--chroot",
        Term::ReadOnly => "--read-only",
        Term::Timeout => "--timeout",
        Term::InPlace => "seekless optimize --in-place",
        Term::Create => "--create",
        Term::Size => "--size SIZE",
        Term::Reflink => "--reflink always",
        Term::OlderPartition => "--like-partition",
        Term::KeepFreed => "--freed keep",
        Term::Older => "--like",
        Term::Shared => "--share",
        Term::HoldOut => "--holdout",
        Term::JournalDevice => "seekless check -j",
    }
}

/// The reason for which a command failed.
#[derive(Debug)]
pub(crate) struct Failure(Error);

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<Text>) -> Self {
        Self(Error::new(kind, message))
    }

    pub(crate) fn usage(message: impl Into<Text>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// An I/O error on a path.
    pub(crate) fn io(subject: impl fmt::Display, error: &io::Error) -> Self {
        Self(Error::io(subject, error))
    }

    /// Whether the arguments are wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.0.kind() == Kind::Usage
    }

    /// Whether space was lacking.
    pub(crate) fn is_no_space(&self) -> bool {
        self.0.kind() == Kind::NoSpace
    }

    /// Puts the subject in front of the message: `IMG: corrupt image ...`.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        Self(self.0.about(subject))
    }

    /// Appends a hint to the message: `... (try this)`.
    pub(crate) fn hint(self, hint: impl Into<Text>) -> Self {
        Self(self.0.hint(hint))
    }

    /// Prints the failure on standard error, and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        ExitCode::from(self.tell(json))
    }

    /// As [`Failure::report`], with the exit code as a number.
    pub(crate) fn tell(&self, json: bool) -> u8 {
        let kind = self.0.kind();
        if json {
            let value = serde_json::json!({
                "error": { "kind": name(kind), "message": self.to_string() }
            });
            say::error_line(&value.to_string());
        } else {
            say::tell(&self.to_string());
        }
        code(kind)
    }
}

impl From<Failure> for Error {
    fn from(Failure(error): Failure) -> Self {
        error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.in_terms(option))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self(error.into())
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self(error.into())
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Self(error.into())
    }
}
