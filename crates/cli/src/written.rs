//! The result of a command that writes a file: its path, its size and a summary of its contents, as
//! a line; with `--json` as fields, with `--quiet` not at all.

use crate::args::Global;
use crate::failure::Failure;
use crate::say::{self, say};
use seekless_compose::base::{Moved, Taken};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::format::OpenOptions;
use seekless_images::Place;
use seekless_images::output::directory_of;
use seekless_images::targets::is_written_only;
use seekless_report::table::grouped;
use seekless_units::{ByteLen, format_size};
use serde_json::{Map, Value};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PLAIN: OpenOptions = OpenOptions { ignore_checksums: false, skip_journal: false };

/// Whether two paths refer to the same file, or will once both are written.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let place = |path: &Path| Some((file(directory_of(path))?, path.file_name()?.to_owned()));
    let same_file = file(one).is_some() && file(one) == file(other);
    same_file || (place(one).is_some() && place(one) == place(other))
}

/// A complete file under its final name.
pub(crate) struct Written {
    path: PathBuf,
    /// `path`, `bytes` and further fields.
    fields: Map<String, Value>,
    text: String,
}

impl Written {
    /// A file or a block device, with its size; a pipe has none.
    pub(crate) fn file(path: &Path) -> Self {
        let mut fields = Map::new();
        fields.insert("path".into(), path.to_string_lossy().into());
        let mut text = path.display().to_string();
        if let Some(len) = length(path) {
            fields.insert("bytes".into(), len.get().into());
            text += &format!(": {}", format_size(len));
        }
        Self { path: path.into(), fields, text }
    }

    /// An image, with the share of its blocks in use; `files` counts its files of all kinds,
    /// directories included.
    pub(crate) fn image(path: &Path, files: u64) -> Result<Self, Failure> {
        Self::image_in(path, &Place::default(), files)
    }

    /// An image in a part of a disk.
    pub(crate) fn image_in(path: &Path, place: &Place, files: u64) -> Result<Self, Failure> {
        if is_written_only(path) {
            return Ok(Self::file(path).with("files", files));
        }
        let image = seekless_images::open(path, place, PLAIN)?;
        let shape = image.geometry();
        let used = shape.blocks.saturating_sub(shape.free_blocks);
        let percent = used as f64 * 100.0 / shape.blocks.max(1) as f64;
        let mut written = Self::file(path);
        let bytes = used * u64::from(shape.block_size);
        written.fields.insert("used_bytes".into(), bytes.into());
        written.text += &format!(", {percent:.1}% used");
        Ok(written.with("files", files))
    }

    /// Adds a count of its contents, such as `events`.
    pub(crate) fn with(mut self, what: &str, count: u64) -> Self {
        self.fields.insert(what.into(), count.into());
        let one = what.strip_suffix('s').filter(|_| count == 1);
        self.text += &format!(", {} {}", grouped(count), one.unwrap_or(what));
        self
    }

    /// Adds a field that the line does not have.
    pub(crate) fn with_value(mut self, field: &str, value: Value) -> Self {
        self.fields.insert(field.into(), value);
        self
    }

    /// Adds the image's UUID.
    pub(crate) fn with_uuid(mut self, place: &Place) -> Result<Self, Failure> {
        if is_written_only(&self.path) {
            return Ok(self);
        }
        let uuid = seekless_images::open(&self.path, place, PLAIN)?.geometry().uuid_text();
        self.text += &format!(", UUID {uuid}");
        self.fields.insert("uuid".into(), uuid.into());
        Ok(self)
    }

    /// Adds a text, as a field and with a word in front.
    pub(crate) fn with_text(mut self, field: &str, word: &str, value: &str) -> Self {
        self.fields.insert(field.into(), value.into());
        self.text += &format!(", {word} {value}");
        self
    }

    /// Adds a number that is not a count.
    pub(crate) fn with_number(mut self, field: &str, word: &str, value: u64) -> Self {
        self.fields.insert(field.into(), value.into());
        self.text += &format!(", {word} {value}");
        self
    }

    /// Adds how many files have kept the places of older images, and how much left them for traces.
    pub(crate) fn with_likeness(self, taken: &Taken, moved: &Moved) -> Self {
        let written = self.with_number("like_same_path", "as before", taken.same_path).with_number(
            "like_same_contents",
            "moved in the tree",
            taken.same_contents,
        );
        if moved.pieces_before == 0 {
            return written;
        }
        let written = written
            .with_number("moved_bytes", "bytes moved for the traces", moved.bytes.get())
            .with_number("moved_chunks", "in chunks", moved.chunks)
            .with_number("pieces_before", "pieces read before", moved.pieces_before)
            .with_number("pieces_after", "after", moved.pieces_after);
        if moved.inode_reads_before == 0 {
            return written;
        }
        written
            .with_number("renumbered_inodes", "inodes with new numbers", moved.inodes)
            .with_number("renumbered_bytes", "bytes that have these", moved.inode_bytes.get())
            .with_number("inode_reads_before", "inode reads before", moved.inode_reads_before)
            .with_number("inode_reads_after", "after", moved.inode_reads_after)
    }

    /// The fields, for a report that has more of them.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Prints the result on standard output.
    pub(crate) fn tell(&self, global: &Global) {
        if global.json {
            say!("{}", Value::from(self.fields.clone()));
        } else {
            self.tell_text(global);
        }
    }

    /// Prints the line on standard output, if neither `--json` nor `--quiet` is given.
    pub(crate) fn tell_text(&self, global: &Global) {
        if !global.json && !global.quiet {
            say!("{}", self.text);
        }
    }

    /// Replaces the name in the result: the file was read under another one.
    pub(crate) fn under(mut self, name: &str) -> Self {
        let read = self.path.display().to_string();
        self.text = self.text.replacen(&read, name, 1);
        self.fields.insert("path".into(), "-".into());
        self
    }

    /// Prints the result on standard error, with `--json` as fields.
    pub(crate) fn tell_on_standard_error(&self, global: &Global) {
        if global.json {
            say::error_line(&Value::from(self.fields.clone()).to_string());
        } else {
            self.tell_aside(global);
        }
    }

    /// Prints the line on standard error, for commands whose standard output is in use.
    pub(crate) fn tell_aside(&self, global: &Global) {
        if !global.json && !global.quiet {
            say::tell(&self.text);
        }
    }
}

/// The length of a file, or of a block device, for which `stat` reports none.
fn length(path: &Path) -> Option<ByteLen> {
    let meta = path.metadata().ok()?;
    if meta.is_file() {
        return Some(ByteLen::new(meta.len()));
    }
    seekless_host::block_device::number(path)?;
    FileDevice::open(path).ok().map(|device| device.len())
}
