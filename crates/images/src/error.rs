//! Errors of opening, reading and writing images.

use rustix::io::Errno;
use seekless_device::DeviceError;
use seekless_fs::term::{Term, Text};
use seekless_fs::{Corruption, FsError, Location};
use seekless_host::HostError;
use std::error;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// The kind of an [`Error`]: each requires a different reaction of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The arguments contradict each other or name something that does not exist.
    Usage,
    /// The image or file is damaged.
    Corrupt,
    /// The image or the request needs a feature that is not supported.
    Unsupported,
    /// The contents do not fit.
    NoSpace,
    /// The system refused: a file is missing, permission is denied, or I/O failed.
    System,
}

/// An error with the subjects that it concerns, outermost first, and hints.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    subjects: Vec<Text>,
    message: Text,
    hints: Vec<Text>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a subject.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Text>) -> Self {
        let (subjects, hints) = (Vec::new(), Vec::new());
        Self { kind, subjects, message: message.into(), hints, source: None }
    }

    /// An error of the arguments.
    #[must_use]
    pub fn usage(message: impl Into<Text>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The error for a signal that ended the work before it was complete.
    #[must_use]
    pub fn interrupted(signal: i32) -> Self {
        let message = format!("interrupted by signal {signal}; everything was cleaned up");
        Self::new(ErrorKind::System, message)
    }

    /// An I/O error on `subject`. A full disk is [`ErrorKind::NoSpace`].
    #[must_use]
    pub fn io(subject: impl Display, error: &io::Error) -> Self {
        Self::io_of(subject.to_string(), error)
    }

    /// As [`Error::io`], on a subject that names parameters.
    #[must_use]
    pub fn io_of(subject: impl Into<Text>, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::System,
        };
        let source = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        Self { subjects: vec![subject.into()], ..Self::caused(kind, source) }
    }

    /// The error for a file that must not exist yet.
    #[must_use]
    pub fn exists(subject: impl Display) -> Self {
        let source = io::Error::from_raw_os_error(Errno::EXIST.raw_os_error());
        let message = "already exists".into();
        Self { message, ..Self::caused(ErrorKind::System, source) }.about(subject)
    }

    /// Adds a subject in front: `IMG: corrupt image ...`.
    #[must_use]
    pub fn about(mut self, subject: impl Display) -> Self {
        self.subjects.insert(0, subject.to_string().into());
        self
    }

    /// Adds a hint at the end: `... (try this)`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Text>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Its subjects, outermost first: mostly paths of files.
    pub fn subjects(&self) -> impl Iterator<Item = String> {
        self.subjects.iter().map(Text::to_string)
    }

    /// The number of the error that a system call would return for it (`errno`), if there is one:
    /// `ENOENT` also for a path that an image does not have.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        let mut source = error::Error::source(self);
        while let Some(error) = source {
            if let Some(code) = error.downcast_ref::<FsError>().and_then(errno_of) {
                return Some(code.raw_os_error());
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return error.raw_os_error();
            }
            source = error.source();
        }
        None
    }

    /// The location of the damage that it is about, if it is about one.
    #[must_use]
    pub fn location(&self) -> Option<Location> {
        match self.source.as_deref()?.downcast_ref()? {
            FsError::Corrupt { location, .. } | FsError::Damaged { location, .. } => {
                Some(**location)
            }
            _ => None,
        }
    }

    /// The hints.
    pub fn hints(&self) -> impl Iterator<Item = String> {
        self.hints.iter().map(Text::to_string)
    }

    /// The error as it is displayed, with each parameter by the name that `name` gives it.
    #[must_use]
    pub fn in_terms(&self, name: impl Fn(Term) -> &'static str) -> String {
        let mut whole: String =
            self.subjects.iter().map(|subject| subject.in_terms(&name) + ": ").collect();
        whole += &self.message.in_terms(&name);
        whole.extend(self.hints.iter().map(|hint| format!(" ({})", hint.in_terms(&name))));
        whole
    }

    /// An error of this kind, with another error as its source.
    fn caused(kind: ErrorKind, source: impl error::Error + Send + Sync + 'static) -> Self {
        let message = source.to_string();
        Self { source: Some(Box::new(source)), ..Self::new(kind, message) }
    }
}

/// Refuses a directory where a file is expected.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn refuse_directory(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::usage("is a directory").about(path.display()));
    }
    Ok(())
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subjects.iter().try_for_each(|subject| write!(f, "{subject}: "))?;
        self.message.fmt(f)?;
        self.hints.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn error::Error + 'static))
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        let kind = match error.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::System,
        };
        Self::caused(kind, error)
    }
}

impl From<FsError> for Error {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Source { name, error } => Self::from(*error).about(name),
            FsError::Device(DeviceError::Open { source }) => {
                Self::io("cannot be opened for writing", &source)
            }
            FsError::Io { source, context } => Self::io(context, &source),
            FsError::Device(DeviceError::Io { source, at }) => {
                Self::io(format_args!("sector {at}"), &source)
            }
            FsError::Refused(text) => Self {
                message: text.clone(),
                ..Self::caused(ErrorKind::Unsupported, FsError::Refused(text))
            },
            error => {
                let is_superblock_sum = matches!(
                    &error,
                    FsError::Corrupt { kind: Corruption::Checksum { .. }, location }
                        if location.structure == "superblock"
                );
                let error = Self::caused(kind_of(&error), error);
                if !is_superblock_sum {
                    return error;
                }
                // Tools that do not support the checksum leave it wrong, and all else right.
                let hint = Text::from(Term::Repair).then(" computes it again; ");
                error.hint(hint.then(Term::IgnoreChecksums).then(" reads past it"))
            }
        }
    }
}

/// The number of an error of a file system, where that is not in a source of it.
fn errno_of(error: &FsError) -> Option<Errno> {
    Some(match error {
        FsError::NotFound(_) => Errno::NOENT,
        FsError::NotDirectory(_) => Errno::NOTDIR,
        FsError::IsDirectory(_) => Errno::ISDIR,
        FsError::Exists(_) => Errno::EXIST,
        FsError::NoSpace(_) => Errno::NOSPC,
        FsError::OverQuota(_) => Errno::DQUOT,
        _ => return None,
    })
}

fn kind_of(error: &FsError) -> ErrorKind {
    match error {
        FsError::Archive { fault, .. } if fault.is_refusal() => ErrorKind::Unsupported,
        FsError::Corrupt { .. }
        | FsError::Damaged { .. }
        | FsError::Marks(_)
        | FsError::Archive { .. }
        | FsError::Container { .. }
        | FsError::Device(DeviceError::Damaged { .. } | DeviceError::Lacking { .. }) => {
            ErrorKind::Corrupt
        }
        FsError::Unsupported(_) | FsError::Invalid(_) => ErrorKind::Unsupported,
        FsError::NoSpace(_) | FsError::OverQuota(_) => ErrorKind::NoSpace,
        _ => ErrorKind::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_go_in_front_and_hints_behind() {
        let error = Error::usage("is wrong").hint("try this").about("a").hint("or that").about("b");
        assert_eq!(error.to_string(), "b: a: is wrong (try this) (or that)");
    }

    #[test]
    fn parameters_have_the_names_that_are_given() {
        let text = || Text::from("needs ").then(Term::Offset);
        let error = Error::from(FsError::Refused(text())).hint(text()).about("a");
        assert_eq!(error.to_string(), "a: needs `offset` (needs `offset`)");
        assert_eq!(error.in_terms(|_| "-o"), "a: needs -o (needs -o)");
    }

    #[test]
    fn the_source_is_kept() {
        let error = Error::from(FsError::NotFound("/x".into())).about("img");
        let source = error::Error::source(&error).expect("a source");
        assert!(matches!(source.downcast_ref(), Some(FsError::NotFound(path)) if path == "/x"));
        let full = Error::io("file", &io::Error::from_raw_os_error(28));
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        let source = error::Error::source(&full).and_then(|it| it.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(28));
    }

    #[test]
    fn an_error_has_the_number_and_the_location_of_its_source() {
        let error = Error::from(FsError::NotFound("/x".into())).about("img");
        assert_eq!(error.os_error(), Some(Errno::NOENT.raw_os_error()));
        assert_eq!(error.subjects().collect::<Vec<_>>(), ["img"]);
        assert_eq!(error.location(), None);
        let full = Error::io("file", &io::Error::from_raw_os_error(28));
        assert_eq!(full.os_error(), Some(28));
        let there = Error::exists("file");
        assert_eq!(there.os_error(), Some(Errno::EXIST.raw_os_error()));
        assert_eq!(there.to_string(), "file: already exists");
        assert_eq!(Error::usage("wrong").os_error(), None);
        let location = Location::of("superblock").at_offset(56);
        let corrupt = FsError::corrupt(Corruption::Magic { found: 0 }, location);
        assert_eq!(Error::from(corrupt).location(), Some(location));
    }
}
