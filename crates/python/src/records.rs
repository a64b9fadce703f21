//! Results as dictionaries and texts.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::Value;

/// A result as a `dict` of plain objects, with the keys of the command line's JSON.
pub(crate) fn to_dict<'py>(
    py: Python<'py>,
    record: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(record);
    let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// A result for people: `Name(key=value, ...)`.
pub(crate) fn repr(name: &str, record: &impl Serialize) -> String {
    let fields = match serde_json::to_value(record) {
        Ok(Value::Object(fields)) => fields,
        _ => return format!("<{name}>"),
    };
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{name}({})", fields.join(", "))
}
