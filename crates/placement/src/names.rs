//! Policies by name.

/// No policy is called so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown policy '{name}' (available: {known})")]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    /// What there is, separated by commas.
    pub known: String,
}

impl UnknownPolicy {
    pub(crate) fn new(name: &str, known: &[&str]) -> Self {
        Self { name: name.to_string(), known: known.join(", ") }
    }
}
