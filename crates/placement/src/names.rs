//! Policies by name.

/// A policy that cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// No policy is called so.
    #[error("unknown policy '{name}' (available: {known})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, separated by commas.
        known: String,
    },
    /// Another format has it.
    #[error("policy '{name}' is for {format} only (available: {known})")]
    Elsewhere {
        /// What was asked for.
        name: String,
        /// Which format has it.
        format: &'static str,
        /// What there is here, separated by commas.
        known: String,
    },
    /// A directory shall reserve fewer inodes, or more, than it can.
    #[error("policy '{name}': a directory can reserve 2 to {most} inodes on this volume")]
    Size {
        /// What was asked for.
        name: String,
        /// Inodes in a group.
        most: u32,
    },
}

/// What formats are called in errors.
pub(crate) const UFS: &str = "UFS";
pub(crate) const EXT: &str = "ext2, ext3 and ext4";

impl PolicyError {
    /// There is none of this name; `elsewhere` is another format with its policies.
    pub(crate) fn unknown(name: &str, known: &[&str], elsewhere: (&'static str, &[&str])) -> Self {
        let (format, theirs) = elsewhere;
        let (name, known) = (name.to_string(), known.join(", "));
        if theirs.contains(&name.as_str()) {
            return Self::Elsewhere { name, format, known };
        }
        Self::Unknown { name, known }
    }
}
