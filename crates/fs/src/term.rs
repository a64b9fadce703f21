//! Texts that name parameters of a request.
//!
//! A parameter has one name in a program and another one on a command line. A text holds a [`Term`]
//! in its place, and each front end writes it by its own name.

use std::fmt;

/// A parameter of a request, or another request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Term {
    /// Replacement of existing contents.
    Force,
    /// Offset of a file system on a disk.
    Offset,
    /// Partition of a disk.
    Partition,
    /// Reading past wrong checksums.
    IgnoreChecksums,
    /// Option that only some formats have, by its name there.
    FormatOption(&'static str),
    /// Name of an image among several in a container.
    Tag,
    /// Machine of an image among several in a container.
    Platform,
    /// A build from an archive on the standard input.
    BuildOfStream,
    /// A check with all repairs.
    Repair,
    /// A check that repairs the usual traces of a crash.
    Preen,
    /// Mount of a volume that is not clean.
    ForcedMount,
    /// Kinds of properties that a new volume may lose.
    Drop,
    /// Loss of the extended attributes that a new volume cannot store.
    DropXattrs,
    /// Owner of all files of a new volume.
    Owner,
    /// The requests that write traces.
    Tracing,
    /// Mount of which reads are recorded.
    Mount,
    /// Origin of the events of a recording.
    EventSource,
    /// The tool that makes the initramfs.
    InitramfsTool,
    /// Removal of the recorder from the initramfs.
    RemovalFromBoot,
    /// Program run with the image as its root.
    Chroot,
    /// Program run without an overlay.
    ReadOnly,
    /// Limit of the time of a program.
    Timeout,
    /// Rearrangement of an unmounted volume in its place.
    InPlace,
    /// Creation of an image that does not exist yet.
    Create,
    /// Size of an image that is created.
    Size,
    /// Whether contents are cloned.
    Reflink,
    /// Partition of the disk of an older image.
    OlderPartition,
    /// Bytes of the older image in freed blocks.
    KeepFreed,
    /// Older images whose places are kept.
    Older,
    /// Layers that lie where they lie in other images.
    Shared,
    /// Scores of each trace on the layout that the others give.
    HoldOut,
    /// Device with the journal of a volume.
    JournalDevice,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Force => "`force`",
            Self::Offset => "`offset`",
            Self::Partition => "`partition`",
            Self::IgnoreChecksums => "`ignore_checksums`",
            Self::FormatOption(name) => return write!(f, "`{name}`"),
            Self::Tag => "`tag`",
            Self::Platform => "`platform`",
            Self::BuildOfStream => "a build",
            Self::Repair => "a repair",
            Self::Preen => "a preening check",
            Self::ForcedMount => "`force`",
            Self::Drop => "`drop`",
            Self::DropXattrs => "`drop_xattrs`",
            Self::Owner => "`owner`",
            Self::Tracing => "a recording or an import",
            Self::Mount => "`mount`",
            Self::EventSource => "`source`",
            Self::InitramfsTool => "`tool`",
            Self::RemovalFromBoot => "`remove`",
            Self::Chroot => "`chroot`",
            Self::ReadOnly => "`read_only`",
            Self::Timeout => "`timeout`",
            Self::InPlace => "rearranged in its place",
            Self::Create => "`create`",
            Self::Size => "`size`",
            Self::Reflink => "`reflink`",
            Self::OlderPartition => "`like_partition`",
            Self::KeepFreed => "`keep_freed`",
            Self::Older => "`like`",
            Self::Shared => "`shared`",
            Self::HoldOut => "`hold_out`",
            Self::JournalDevice => "`journal`",
        })
    }
}

/// A text in which parameters are named by terms.
///
/// ```
/// use seekless_fs::term::{Term, Text};
///
/// let hint = Text::from("use ").then(Term::Force).then(" to replace it");
/// assert_eq!(hint.to_string(), "use `force` to replace it");
/// assert_eq!(hint.in_terms(|_| "--force"), "use --force to replace it");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text(Vec<Token>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Words(String),
    Term(Term),
}

impl Text {
    /// The text with a continuation.
    #[must_use]
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        self.0.extend(next.into().0);
        self
    }

    /// The text with each parameter by the name that `name` gives it.
    #[must_use]
    pub fn in_terms(&self, name: impl Fn(Term) -> &'static str) -> String {
        let word = |token: &Token| match token {
            Token::Words(words) => words.clone(),
            Token::Term(term) => name(*term).into(),
        };
        self.0.iter().map(word).collect()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| match token {
            Token::Words(words) => f.write_str(words),
            Token::Term(term) => term.fmt(f),
        })
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Self(vec![Token::Words(words)])
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        words.to_string().into()
    }
}

impl From<Term> for Text {
    fn from(term: Term) -> Self {
        Self(vec![Token::Term(term)])
    }
}
