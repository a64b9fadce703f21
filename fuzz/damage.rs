//! Of the tests of ext, where their modules expect each other.

#[path = "../crates/ext/tests/testsuite/damage/exercise.rs"]
pub(crate) mod exercise;
#[path = "../crates/ext/tests/testsuite/damage/images.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
pub(crate) mod images;
#[path = "../crates/ext/tests/testsuite/damage/in_use.rs"]
pub(crate) mod in_use;
#[path = "../crates/ext/tests/testsuite/damage/quotas.rs"]
pub(crate) mod quotas;
#[path = "../crates/ext/tests/testsuite/damage/sums.rs"]
pub(crate) mod sums;
