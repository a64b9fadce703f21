//! What a command has written, in one line: a file's path and size and what it holds.
//! With `--json` the same as fields, without either with `--quiet`.

use crate::args::Global;
use crate::failure::Failure;
use crate::say::{self, say};
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::format::OpenOptions;
use seekless_images::Place;
use seekless_report::table::grouped;
use seekless_units::{ByteLen, format_size};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const PLAIN: OpenOptions = OpenOptions { ignore_checksums: false, skip_journal: false };

/// A file that is complete under its name.
pub(crate) struct Written {
    path: PathBuf,
    /// `path`, `bytes` and what else is known.
    fields: Map<String, Value>,
    text: String,
}

impl Written {
    /// A file or a block device; its size is asked of the system. A pipe has none.
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

    /// An image with the share of its blocks that are in use; `files` counts its files of
    /// all kinds, directories included.
    pub(crate) fn image(path: &Path, files: u64) -> Result<Self, Failure> {
        Self::image_in(path, &Place::default(), files)
    }

    /// The same of a part of it.
    pub(crate) fn image_in(path: &Path, place: &Place, files: u64) -> Result<Self, Failure> {
        let image = seekless_images::open(path, place, PLAIN)?;
        let shape = image.geometry();
        let used = shape.blocks.saturating_sub(shape.free_blocks);
        let percent = used as f64 * 100.0 / shape.blocks.max(1) as f64;
        let mut written = Self::file(path);
        let bytes = used.saturating_mul(shape.block_size.into());
        written.fields.insert("used_bytes".into(), bytes.into());
        written.text += &format!(", {percent:.1}% used");
        Ok(written.with("files", files))
    }

    /// The same with a count of what is in it, such as `events`.
    pub(crate) fn with(mut self, what: &str, count: u64) -> Self {
        self.fields.insert(what.into(), count.into());
        let one = what.strip_suffix('s').filter(|_| count == 1);
        self.text += &format!(", {} {}", grouped(count), one.unwrap_or(what));
        self
    }

    /// The same with an image's UUID.
    pub(crate) fn with_uuid(mut self, place: &Place) -> Result<Self, Failure> {
        let uuid = seekless_images::open(&self.path, place, PLAIN)?.geometry().uuid_text();
        self.text += &format!(", UUID {uuid}");
        self.fields.insert("uuid".into(), uuid.into());
        Ok(self)
    }

    /// The same with something else that is known, as a field and with a word for it.
    pub(crate) fn with_text(mut self, field: &str, word: &str, value: &str) -> Self {
        self.fields.insert(field.into(), value.into());
        self.text += &format!(", {word} {value}");
        self
    }

    /// The same with a number that is not a count.
    pub(crate) fn with_number(mut self, field: &str, word: &str, value: u64) -> Self {
        self.fields.insert(field.into(), value.into());
        self.text += &format!(", {word} {value}");
        self
    }

    /// The fields, for a report that has others, too.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Tells it on standard output.
    pub(crate) fn tell(&self, global: &Global) {
        if global.json {
            say!("{}", Value::from(self.fields.clone()));
        } else {
            self.tell_text(global);
        }
    }

    /// Tells it where the fields are told with others, if at all.
    pub(crate) fn tell_text(&self, global: &Global) {
        if !global.json && !global.quiet {
            say!("{}", self.text);
        }
    }

    /// The same under another name than that by which it is read.
    pub(crate) fn under(mut self, name: &str) -> Self {
        let read = self.path.display().to_string();
        self.text = self.text.replacen(&read, name, 1);
        self.fields.insert("path".into(), "-".into());
        self
    }

    /// Tells it on standard error, also as fields.
    pub(crate) fn tell_on_standard_error(&self, global: &Global) {
        if global.json {
            say::error_line(&Value::from(self.fields.clone()).to_string());
        } else {
            self.tell_aside(global);
        }
    }

    /// Tells it on standard error, where standard output is not the command's own.
    pub(crate) fn tell_aside(&self, global: &Global) {
        if !global.json && !global.quiet {
            say::tell(&self.text);
        }
    }
}

/// The length of a file or of a block device, of which `stat` does not tell it.
fn length(path: &Path) -> Option<ByteLen> {
    let meta = path.metadata().ok()?;
    if meta.is_file() {
        return Some(ByteLen::new(meta.len()));
    }
    seekless_host::block_device::number(path)?;
    FileDevice::open(path).ok().map(|device| device.len())
}
