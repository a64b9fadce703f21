//! Lines of traces exactly as they are written here, which most are: they are read without copies,
//! and need not be written again where a trace passes through.

use super::{EventRef, OPS};
use seekless_units::Nanos;

/// The event of a line with the fields of [`super::Writer`] in their order, each as it writes them,
/// without escapes; `None` for any other line, be it an event or not.
pub(super) fn parse(line: &[u8]) -> Option<EventRef<'_>> {
    let mut rest = Rest(line.strip_suffix(b"\n").unwrap_or(line));
    rest.skip(b"{\"time\":")?;
    let time = Nanos::new(rest.number()?);
    let pid = match rest.skip(b",\"pid\":") {
        Some(()) => u32::try_from(rest.number()?).ok().filter(|&pid| pid != 0)?,
        None => 0,
    };
    let comm = rest.optional(b",\"comm\":\"", Rest::string)?;
    rest.skip(b",\"op\":\"")?;
    let name = rest.string()?;
    let (_, op) = OPS.iter().find(|(known, _)| *known == name)?;
    rest.skip(b",\"path\":\"")?;
    let path = rest.string()?.as_bytes();
    let offset = rest.optional(b",\"offset\":", Rest::number)?;
    let length = rest.optional(b",\"length\":", Rest::number)?;
    // A range has an offset; one without a length begins behind 0.
    if length.is_some() && offset.is_none() || length.is_none() && offset == Some(0) {
        return None;
    }
    let missing = rest.skip(b",\"missing\":true").is_some();
    let fetched = rest.skip(b",\"fetched\":true").is_some();
    let offset = offset.unwrap_or(0);
    let event = EventRef { time, pid, comm, op, path, offset, length, missing, fetched };
    (rest.0 == b"}").then_some(event)
}

/// The time of such a line, of which nothing else is looked at.
pub(super) fn time(line: &[u8]) -> Option<Nanos> {
    let mut rest = Rest(line);
    rest.skip(b"{\"time\":")?;
    let time = rest.number()?;
    rest.skip(b",").map(|()| Nanos::new(time))
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// The value behind `name`, if that is next; `None` if the value is not as it is written.
    fn optional<T>(
        &mut self,
        name: &[u8],
        value: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.skip(name) {
            Some(()) => value(self).map(Some),
            None => Some(None),
        }
    }

    /// A number without leading zeros.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.0.split_at_checked(digits)?;
        if digits == 0 || (digits > 1 && number.first() == Some(&b'0')) {
            return None;
        }
        self.0 = rest;
        number
            .iter()
            .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
    }

    /// The string up to the next quote, which is skipped.
    fn string(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        self.skip(b"\"")?;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Line, Op};
    use super::*;

    fn written(event: &Event) -> Vec<u8> {
        serde_json::to_vec(&Line::from_event(event)).unwrap()
    }

    #[test]
    fn each_event_is_read_as_written() {
        let plain = Event::new(Nanos::new(u64::MAX), Op::Fault, "/b\u{e4}r".into());
        let comm = Event { comm: Some("s h".into()), ..plain.clone().by(7).on(0, 0) };
        let tail = Event { offset: 9, missing: true, fetched: true, ..plain.clone() };
        for event in [&plain, &comm, &tail] {
            let line = written(event);
            let read = parse(&line).unwrap();
            assert_eq!(&read.to_event(), event);
            assert_eq!(written(&read.to_event()), line, "what is passed on is what is written");
            for end in 0..line.len() {
                assert_eq!(parse(&line[..end]), None, "{}", String::from_utf8_lossy(&line[..end]));
            }
        }
    }

    #[test]
    fn lines_that_would_be_written_otherwise_are_left_to_the_parser() {
        for line in [
            r#"{"time":05,"op":"open","path":"/a"}"#,
            r#"{"time":5,"pid":0,"op":"open","path":"/a"}"#,
            r#"{"time":5,"pid":4294967296,"op":"open","path":"/a"}"#,
            r#"{"time":18446744073709551616,"op":"open","path":"/a"}"#,
            r#"{"time":5,"op":"chroot","path":"/a"}"#,
            r#"{"time":5,"op":"open","path":"/\u0041"}"#,
            r#"{"time":5,"op":"read","path":"/a","length":5}"#,
            r#"{"time":5,"op":"read","path":"/a","offset":0}"#,
            r#"{"time":5,"op":"read","path":"/a","missing":false}"#,
            r#"{"time":5,"op":"read","path":"/a","cpu":3}"#,
            r#"{"time":5, "op":"read","path":"/a"}"#,
            r#"{"op":"read","path":"/a"}"#,
            "{\"time\":5,\"op\":\"read\",\"path\":\"/a\tb\"}",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parse(b"{\"time\":5,\"op\":\"open\",\"path\":\"/\xff\"}"), None);
    }
}
