//! A block's parameters by name, with errors that name them.

use super::ImportError;
use super::syntax::{Block, Spanned, Value};

/// A block with its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) block: &'a Block,
    pub(super) file: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Spanned<Value>> {
        self.block.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> ImportError {
        let first = self.block.entries.first().map_or(1, |(_, value)| value.line);
        ImportError::Invalid {
            file: self.file.into(),
            line: self.get(key).map_or(first, |value| value.line),
            key: key.into(),
            message: message.into(),
        }
    }

    fn need(&self, key: &str) -> Result<&'a Spanned<Value>, ImportError> {
        self.get(key).ok_or_else(|| self.error(key, "missing"))
    }

    /// A number; an error if it is missing or of another type.
    pub(super) fn number(&self, key: &str) -> Result<f64, ImportError> {
        match self.need(key)?.value {
            Value::Number(number) if number.is_finite() => Ok(number),
            _ => Err(self.error(key, "a number expected")),
        }
    }

    pub(super) fn number_or(&self, key: &str, default: f64) -> Result<f64, ImportError> {
        if self.get(key).is_some() { self.number(key) } else { Ok(default) }
    }

    /// An integer.
    pub(super) fn count<T: TryFrom<u64>>(&self, key: &str) -> Result<T, ImportError> {
        let number = self.number(key)?;
        whole(number).ok_or_else(|| self.error(key, format!("{number} is not a valid count")))
    }

    pub(super) fn count_or<T: TryFrom<u64>>(
        &self,
        key: &str,
        default: T,
    ) -> Result<T, ImportError> {
        if self.get(key).is_some() { self.count(key) } else { Ok(default) }
    }

    /// A switch, 0 for off.
    pub(super) fn switch(&self, key: &str) -> Result<bool, ImportError> {
        Ok(self.number_or(key, 0.0)? != 0.0)
    }

    pub(super) fn words(&self, key: &str) -> Result<&'a str, ImportError> {
        match &self.need(key)?.value {
            Value::Words(words) | Value::Source(words) => Ok(words),
            _ => Err(self.error(key, "a name expected")),
        }
    }

    pub(super) fn block(&self, key: &str) -> Result<Fields<'a>, ImportError> {
        match &self.need(key)?.value {
            Value::Block(block) => Ok(Fields { block, file: self.file }),
            _ => Err(self.error(key, "a block expected")),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Spanned<Value>], ImportError> {
        match &self.need(key)?.value {
            Value::List(list) => Ok(list),
            _ => Err(self.error(key, "a list expected")),
        }
    }

    /// A list of numbers; empty if it is missing.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, ImportError> {
        if self.get(key).is_none() {
            return Ok(Vec::new());
        }
        let number = |item: &Spanned<Value>| match item.value {
            Value::Number(number) if number.is_finite() => Ok(number),
            _ => Err(ImportError::Invalid {
                file: self.file.into(),
                line: item.line,
                key: key.into(),
                message: "a number expected".into(),
            }),
        };
        self.list(key)?.iter().map(number).collect()
    }

    pub(super) fn counts(&self, key: &str) -> Result<Vec<u64>, ImportError> {
        let count = |number| whole(number).ok_or_else(|| self.error(key, format!("{number}")));
        self.numbers(key)?.into_iter().map(count).collect()
    }
}

/// Converts an integral float to an integer.
#[allow(clippy::as_conversions, reason = "checked to be whole and in range")]
pub(super) fn whole<T: TryFrom<u64>>(number: f64) -> Option<T> {
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    let fine = (0.0..=LARGEST).contains(&number) && number.fract() == 0.0;
    fine.then_some(number as u64).and_then(|number| T::try_from(number).ok())
}
