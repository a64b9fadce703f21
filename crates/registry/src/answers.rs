//! Reasons that a server gives, for messages.

use crate::pace::Paced;
use serde::Deserialize;
use std::io::Read;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;

/// Bytes read of an answer that only says why a request failed.
const REASON_MAX: u64 = 64 << 10;

/// Characters shown of a reason.
const SHOWN_MAX: usize = 200;

/// The errors in an answer of a registry (distribution specification, "Error Codes"), or of a server
/// of tokens (RFC 6749, 5.2).
#[derive(Deserialize, Default)]
#[serde(default)]
struct Reasons {
    errors: Vec<Reason>,
    details: String,
    error_description: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reason {
    code: String,
    message: String,
}

/// The status of an answer, and the reason that it gives.
pub(crate) fn reason(answer: Response<Body>, timeout: Duration) -> String {
    let status = answer.status();
    let mut body = Vec::new();
    // A reason that breaks off is none; the status says enough.
    let paced = Paced::new(answer.into_body().into_reader(), timeout);
    let read = paced.take(REASON_MAX).read_to_end(&mut body);
    let reasons: Reasons =
        read.ok().and_then(|_| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let given = match reasons.errors.into_iter().next() {
        Some(Reason { message, .. }) if !message.is_empty() => message,
        Some(Reason { code, .. }) => code,
        None if reasons.details.is_empty() => reasons.error_description,
        None => reasons.details,
    };
    let given = printable(&given);
    if given.is_empty() { status.to_string() } else { format!("{status}: {given}") }
}

/// A text of another program without line ends and control characters, at most `SHOWN_MAX` long.
pub(crate) fn printable(text: &str) -> String {
    let plain = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(SHOWN_MAX).collect()
}
