//! How a command fails: a message, and the exit code that says what kind.

use crate::say;
use seekless_device::DeviceError;
use seekless_fs::{Corruption, FsError};
use seekless_host::HostError;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What kind of failure; the number is the process's exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Usage = 2,
    Corrupt = 3,
    Unsupported = 4,
    NoSpace = 5,
    System = 6,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::NoSpace => "no-space",
            Self::System => "system",
        }
    }
}

/// Why a command could not do its job.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Whether the arguments are wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.kind == Kind::Usage
    }

    /// Whether there was too little room.
    pub(crate) fn is_no_space(&self) -> bool {
        self.kind == Kind::NoSpace
    }

    /// The failure with what it happened to in front: `IMG: corrupt image ...`.
    pub(crate) fn about(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The failure with what may help behind: `... (try this)`.
    pub(crate) fn hint(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{} ({what})", self.message);
        self
    }

    /// Refuses a directory in the place of a file.
    pub(crate) fn unless_directory(path: &Path) -> Result<(), Self> {
        if path.is_dir() {
            return Err(Self::usage(format!("{}: is a directory", path.display())));
        }
        Ok(())
    }

    /// An I/O failure on a path.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            _ => Kind::System,
        };
        Self::new(kind, format!("{what}: {error}"))
    }

    /// Prints the failure on standard error and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        ExitCode::from(self.tell(json))
    }

    /// The same, with the exit code as a number.
    pub(crate) fn tell(&self, json: bool) -> u8 {
        if json {
            let value = serde_json::json!({
                "error": { "kind": self.kind.name(), "message": self.message }
            });
            say::error_line(&value.to_string());
        } else {
            say::tell(&self.message);
        }
        self.kind as u8
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let kind = match error.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            io::ErrorKind::Unsupported => Kind::Unsupported,
            _ => Kind::System,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        let error = match error {
            FsError::Source { name, error } => return Self::from(*error).about(name),
            error => error,
        };
        if let FsError::Corrupt { kind: Corruption::Checksum { .. }, location } = &error
            && location.structure == "superblock"
        {
            // Tools that do not know of the checksum leave it wrong, and all else right.
            return Self::new(Kind::Corrupt, error.to_string())
                .hint("seekless check -y computes it again; --ignore-checksums reads past it");
        }
        let kind = match &error {
            FsError::Archive { fault, .. } if fault.is_refusal() => Kind::Unsupported,
            FsError::Corrupt { .. }
            | FsError::Damaged { .. }
            | FsError::Marks(_)
            | FsError::Archive { .. }
            | FsError::Container { .. }
            | FsError::Device(DeviceError::Damaged { .. }) => Kind::Corrupt,
            FsError::Unsupported(_) | FsError::Invalid(_) => Kind::Unsupported,
            FsError::NoSpace(_) => Kind::NoSpace,
            FsError::Device(DeviceError::Open { source }) => {
                return Self::io("cannot be opened for writing", source);
            }
            FsError::Io { source, context } => return Self::io(context, source),
            FsError::Device(DeviceError::Io { source, at }) => {
                return Self::io(format_args!("sector {at}"), source);
            }
            _ => Kind::System,
        };
        Self::new(kind, error.to_string())
    }
}
