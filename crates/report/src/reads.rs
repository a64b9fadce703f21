//! Requests in order, with their files.

use seekless_units::{BlockNo, Extent, Nanos};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};

/// Interned strings.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    index: HashMap<String, u32>,
}

impl Names {
    /// The number of a name; a new name gets a new one.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.index.get(name) {
            return number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_string());
        self.index.insert(name.to_string(), number);
        number
    }

    /// All names, in the order of their numbers.
    #[must_use]
    pub fn all(&self) -> &[String] {
        &self.names
    }

    /// The name with this number; empty if there is none.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

/// One request to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The blocks that it reads.
    pub extent: Extent,
    /// Its purpose, a number in [`Reads::purposes`].
    pub purpose: u32,
    /// The file it belongs to, a number in [`Reads::paths`].
    pub path: u32,
    /// The program's operation, a number in [`Reads::ops`].
    pub op: u32,
    /// The event of the trace that caused it.
    pub event: u64,
}

/// Requests in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// The requests.
    pub list: Vec<Read>,
    /// Paths, ready to be shown.
    pub paths: Names,
    /// Operations.
    pub ops: Names,
    /// Purposes.
    pub purposes: Names,
    /// Times of the requests, by device.
    pub times: Vec<DeviceTime>,
}

/// Times of requests on a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceTime {
    /// The device's name.
    pub device: String,
    /// For each request, the time from the start of the first request to the end of this one.
    pub ends: Vec<Nanos>,
}

/// The cost of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FileCost {
    /// The file.
    pub path: String,
    /// Requests for its inode, map, attributes and contents.
    pub requests: u64,
    /// Requests among them that do not begin where the previous one ended.
    pub seeks: u64,
    /// Number of bytes read.
    pub bytes: u64,
}

impl Reads {
    /// The requests, each with the distance in blocks from the end of the previous one; `None` for
    /// the first.
    pub fn with_distance(&self) -> impl Iterator<Item = (&Read, Option<u64>)> {
        let mut head: Option<BlockNo> = None;
        self.list.iter().map(move |read| {
            let distance = head.map(|head| head.get().abs_diff(read.extent.start.get()));
            head = Some(read.extent.end());
            (read, distance)
        })
    }

    /// The `most` files with the most seeks, then requests, then bytes.
    #[must_use]
    pub fn worst_files(&self, most: usize, block_size: u64) -> Vec<FileCost> {
        let mut costs: HashMap<u32, (u64, u64, u64)> = HashMap::new();
        for (read, distance) in self.with_distance() {
            let cost = costs.entry(read.path).or_default();
            cost.0 += u64::from(distance.is_some_and(|distance| distance > 0));
            cost.1 += 1;
            cost.2 += read.extent.len * block_size;
        }
        let mut files: Vec<FileCost> = costs
            .into_iter()
            .map(|(path, (seeks, requests, bytes))| FileCost {
                path: self.paths.name(path).to_string(),
                requests,
                seeks,
                bytes,
            })
            .collect();
        files.sort_by(|a, b| {
            let costs = |file: &FileCost| (file.seeks, file.requests, file.bytes);
            costs(b).cmp(&costs(a)).then_with(|| a.path.cmp(&b.path))
        });
        files.truncate(most);
        files
    }

    /// Writes a line with an object for each request; `image` distinguishes several images.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_log(
        &self,
        block_size: u64,
        image: Option<&str>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for (at, (read, distance)) in self.with_distance().enumerate() {
            let line = LogLine {
                image,
                sequence: at as u64,
                event: read.event,
                op: self.ops.name(read.op),
                path: self.paths.name(read.path),
                purpose: self.purposes.name(read.purpose),
                block: read.extent.start.get(),
                blocks: read.extent.len,
                offset: read.extent.start.get() * block_size,
                bytes: read.extent.len * block_size,
                seek_distance_bytes: distance.unwrap_or(0) * block_size,
            };
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct LogLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    sequence: u64,
    event: u64,
    op: &'a str,
    path: &'a str,
    purpose: &'a str,
    block: u64,
    blocks: u64,
    offset: u64,
    bytes: u64,
    seek_distance_bytes: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads of `(start, len, path)`.
    pub(crate) fn reads(list: &[(u64, u64, &str)]) -> Reads {
        let mut reads = Reads::default();
        for (at, &(start, len, path)) in list.iter().enumerate() {
            let read = Read {
                extent: Extent::new(BlockNo::new(start), len),
                purpose: reads.purposes.number("data"),
                path: reads.paths.number(path),
                op: reads.ops.number("read"),
                event: at as u64,
            };
            reads.list.push(read);
        }
        reads
    }

    #[test]
    fn the_worst_file_is_the_one_with_the_most_seeks() {
        let reads =
            reads(&[(10, 2, "/a"), (12, 1, "/a"), (50, 1, "/b"), (90, 9, "/c"), (5, 1, "/c")]);
        let worst = reads.worst_files(2, 4096);
        let expect = |path: &str, requests, seeks, blocks: u64| FileCost {
            path: path.into(),
            requests,
            seeks,
            bytes: blocks * 4096,
        };
        assert_eq!(worst, [expect("/c", 2, 2, 10), expect("/b", 1, 1, 1)]);
    }

    #[test]
    fn the_log_has_a_line_a_request() {
        let mut log = Vec::new();
        reads(&[(10, 2, "/a"), (7, 1, "/\"")]).write_log(1024, Some("x"), &mut log).unwrap();
        let expected = "{\"image\":\"x\",\"sequence\":0,\"event\":0,\"op\":\"read\",\"path\":\"/a\",\
            \"purpose\":\"data\",\"block\":10,\"blocks\":2,\"offset\":10240,\"bytes\":2048,\
            \"seek_distance_bytes\":0}\n\
            {\"image\":\"x\",\"sequence\":1,\"event\":1,\"op\":\"read\",\"path\":\"/\\\"\",\
            \"purpose\":\"data\",\"block\":7,\"blocks\":1,\"offset\":7168,\"bytes\":1024,\
            \"seek_distance_bytes\":5120}\n";
        assert_eq!(String::from_utf8(log).unwrap(), expected);
    }
}
