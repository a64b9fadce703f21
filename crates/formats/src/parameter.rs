//! Parameters of a format: the options of its mounts and of its repairs, each with its value and
//! its help, as Linux describes them with `fs_parameter_spec` (`include/linux/fs_parser.h`).

use std::fmt;

/// The value of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// None: the parameter is a flag.
    Flag,
    /// Text; the format tells when it is used whether it is valid.
    Text {
        /// The value's name in help.
        name: &'static str,
    },
    /// Text that is not empty, or none.
    OptionalText {
        /// The value's name in help.
        name: &'static str,
    },
    /// A number in a range.
    Number {
        /// The value's name in help.
        name: &'static str,
        /// The smallest valid value.
        least: i64,
        /// The largest valid value.
        most: i64,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// A parameter of a format.
///
/// ```
/// use seekless_formats::{Argument, FAT};
///
/// let zone = FAT.mount_parameters.iter().find(|parameter| parameter.name == "tz").unwrap();
/// assert_eq!(zone.to_string(), "tz=MINUTES");
/// assert!(zone.check(&Argument::new("tz", Some("60"))).is_ok());
/// assert!(zone.check(&Argument::new("tz", Some("2000"))).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, as `mount -o` takes it.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// Help: a phrase, without a full stop.
    pub help: &'static str,
}

impl Parameter {
    /// A parameter whose value is any number.
    pub(crate) const fn number(
        name: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, value: Value::Number { name: value, least: 0, most: i64::MAX }, help }
    }

    /// Whether an argument has a valid value.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn check(&self, argument: &Argument) -> Result<(), String> {
        match (self.value, argument.value()) {
            (Value::OptionalText { .. }, Some("")) => Err(format!("expected {self}")),
            (Value::Flag | Value::OptionalText { .. }, None)
            | (Value::Text { .. } | Value::OptionalText { .. }, Some(_)) => Ok(()),
            (Value::Flag, Some(_)) => Err("takes no value".into()),
            (_, None) => Err(format!("expected {self}")),
            (Value::Number { least, most, .. }, Some(text)) => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                Ok(_) => Err(format!("{least} to {most} is valid")),
                Err(_) => Err("invalid number".into()),
            },
            (Value::OneOf(words), Some(text)) if words.contains(&text) => Ok(()),
            (Value::OneOf(words), Some(_)) => Err(format!("expected {}", words.join(", "))),
        }
    }
}

/// As in help: the name, and the value's name.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Flag => f.write_str(self.name),
            Value::Text { name } | Value::Number { name, .. } => write!(f, "{}={name}", self.name),
            Value::OptionalText { name } => write!(f, "{}[={name}]", self.name),
            Value::OneOf(words) => write!(f, "{}={}", self.name, words.join("|")),
        }
    }
}

/// A parameter with its value, as somebody gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    name: String,
    value: Option<String>,
}

impl Argument {
    /// A parameter by its name, and its value.
    #[must_use]
    pub fn new(name: &str, value: Option<&str>) -> Self {
        Self { name: name.into(), value: value.map(Into::into) }
    }

    /// The name of the parameter.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The value of a number that [`Parameter::check`] accepted.
    pub(crate) fn number(&self) -> Option<i64> {
        self.value()?.parse().ok()
    }
}

/// As `mount -o` takes it.
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            None => f.write_str(&self.name),
            Some(value) => write!(f, "{}={value}", self.name),
        }
    }
}
