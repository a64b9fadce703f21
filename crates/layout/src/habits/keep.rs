//! The state of habits, as text that outlives a process: JSON Lines with a header, a line for each
//! habit, lines of files, and a last line with the checksum of all others. Files are numbers; no
//! name of a file is in it.

use super::choose::{Budget, Moved};
use super::{Facts, FileId, Habit, Habits, Rules, Seconds};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// The version of the format that is written here.
const VERSION: u64 = 1;

/// Files in a line.
const FILES: usize = 512;

/// A line is no longer than this, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// Why a state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A line does not match the format.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The error.
        why: String,
    },
    /// It is of a later version of the format.
    #[error("line 1: version {0} of the format is not supported (this is {VERSION})")]
    Version(u64),
    /// It ends before its end.
    #[error("line {0}: the end is missing")]
    Cut(u64),
    /// A byte of it differs from the written one.
    #[error("line {0}: the checksum of the lines before is another one")]
    Checksum(u64),
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    seekless_watch: u64,
    /// Of the volume, for people.
    volume: String,
    saved: Seconds,
    next_number: u32,
    budget: Budget,
    moves: Vec<Moved>,
}

/// A line of the state file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateLine {
    Habit(Habit),
    Files(Vec<(FileId, Facts)>),
    /// CRC-32C of all lines before.
    End(u32),
}

/// Writes the state. Episodes that are not over are not in it.
///
/// # Errors
/// When `out` does not take it.
pub fn write(habits: &Habits, volume: &str, now: Seconds, out: &mut dyn Write) -> io::Result<()> {
    let mut sum = 0;
    let mut put = |line: &[u8]| {
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, line), b"\n");
        out.write_all(line)?;
        out.write_all(b"\n")?;
        Ok::<u32, io::Error>(sum)
    };
    let header = Header {
        seekless_watch: VERSION,
        volume: volume.to_string(),
        saved: now,
        next_number: habits.next_number,
        budget: habits.budget,
        moves: habits.moves.clone(),
    };
    let mut sum = put(&serde_json::to_vec(&header)?)?;
    for habit in &habits.habits {
        sum = put(&serde_json::to_vec(&StateLine::Habit(habit.clone()))?)?;
    }
    let mut files: Vec<(FileId, Facts)> =
        habits.facts.iter().map(|(file, facts)| (*file, facts.clone())).collect();
    files.sort_unstable_by_key(|(file, _)| *file);
    for part in files.chunks(FILES) {
        sum = put(&serde_json::to_vec(&StateLine::Files(part.to_vec()))?)?;
    }
    put(&serde_json::to_vec(&StateLine::End(sum))?)?;
    Ok(())
}

/// Reads a state that [`write()`] has written; also returns when that was. Memory is bounded by the
/// length of the input, of which no line is longer than 64 MiB.
///
/// # Errors
/// [`StateError`], with the line.
pub fn read(rules: Rules, input: &mut dyn BufRead) -> Result<(Habits, Seconds), StateError> {
    let mut reader = StateReader { input, line: 0, sum: 0, text: Vec::new() };
    reader.next()?;
    let header = reader.header()?;
    let mut habits = Habits::new(rules);
    (habits.budget, habits.moves) = (header.budget, header.moves);
    habits.next_number = header.next_number;
    loop {
        let before = reader.sum;
        reader.next()?;
        match reader.parse()? {
            StateLine::Habit(habit) => {
                reader.sound(&habit, &habits)?;
                habits.habits.push(habit);
            }
            StateLine::Files(files) => habits.facts.extend(files),
            StateLine::End(sum) if sum == before => break,
            StateLine::End(_) => return Err(StateError::Checksum(reader.line)),
        }
    }
    habits.shrink(header.saved);
    Ok((habits, header.saved))
}

/// Reads the lines of the state file and sums their checksum.
struct StateReader<'a> {
    input: &'a mut dyn BufRead,
    line: u64,
    sum: u32,
    text: Vec<u8>,
}

impl StateReader<'_> {
    fn next(&mut self) -> Result<(), StateError> {
        self.text.clear();
        let mut part = io::Read::take(&mut self.input, LONGEST_LINE);
        part.read_until(b'\n', &mut self.text)?;
        self.line += 1;
        if self.text.pop() != Some(b'\n') {
            return Err(StateError::Cut(self.line));
        }
        self.sum = crc32c::crc32c_append(crc32c::crc32c_append(self.sum, &self.text), b"\n");
        Ok(())
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, StateError> {
        serde_json::from_slice(&self.text).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, why: impl Into<String>) -> StateError {
        StateError::Line { line: self.line, why: why.into() }
    }

    fn header(&self) -> Result<Header, StateError> {
        let value: serde_json::Value = self.parse()?;
        match value.get("seekless_watch").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => self.parse(),
            Some(version) => Err(StateError::Version(version)),
            None => Err(self.wrong("not the state of seekless watch")),
        }
    }

    /// Errors that no written state has.
    fn sound(&self, habit: &Habit, others: &Habits) -> Result<(), StateError> {
        if habit.samples.is_empty() || !habit.weight.is_finite() || habit.weight < 0.0 {
            return Err(self.wrong("a habit without runs or weight"));
        }
        if habit.number >= others.next_number || others.habit(habit.number).is_some() {
            return Err(self.wrong(format!("habit {} is there twice", habit.number)));
        }
        Ok(())
    }
}
