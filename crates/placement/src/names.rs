//! Policies by name.

/// The error of selecting a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("unknown policy '{name}' (available: {known})")]
    Unknown {
        /// The requested name.
        name: String,
        /// The available names, separated by commas.
        known: String,
    },
    /// The policy is for another format.
    #[error("policy '{name}' is for {format} only (available: {known})")]
    Elsewhere {
        /// The requested name.
        name: String,
        /// The format that has it.
        format: &'static str,
        /// The names available here, separated by commas.
        known: String,
    },
    /// The number of reserved inodes per directory is out of range.
    #[error("policy '{name}': a directory can reserve 2 to {most} inodes on this volume")]
    Size {
        /// The requested name.
        name: String,
        /// Inodes in a group.
        most: u32,
    },
}

/// Names of formats in errors.
pub(crate) const UFS: &str = "UFS";
pub(crate) const EXT: &str = "ext2, ext3 and ext4";

impl PolicyError {
    /// The error for an unknown name; `elsewhere` is another format with its policies.
    pub(crate) fn unknown(name: &str, known: &[&str], elsewhere: (&'static str, &[&str])) -> Self {
        let (format, theirs) = elsewhere;
        let (name, known) = (name.to_string(), known.join(", "));
        if theirs.contains(&name.as_str()) {
            return Self::Elsewhere { name, format, known };
        }
        Self::Unknown { name, known }
    }
}
