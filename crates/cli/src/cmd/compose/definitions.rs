//! `seekless build --definitions`: a disk of several partitions.

use super::BuildArgs;
use super::disk::boot_options;
use super::room::Room;
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::source::{Purpose, source_date_epoch};
use crate::written::Written;
use seekless_compose::definitions::{self, Definition, DiskBuild, FileSystem, PartitionWritten};
use seekless_compose::formats::Options;
use seekless_compose::traces;
use seekless_ext::{BuildOptions, Features};
use seekless_fs::source::Source;
use seekless_images::Error;
use seekless_images::output::name_of;
use seekless_images::targets::Target;
use seekless_report::table::grouped;
use seekless_units::format_size;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;

impl BuildArgs {
    /// The options of the file system in a partition, without size and label.
    fn options_in_partition(
        &self,
        format: FileSystem,
        source: &dyn Source,
    ) -> Result<Options, Failure> {
        let features = match format {
            FileSystem::Vfat => return Ok(Options::Fat(boot_options()?)),
            FileSystem::Ext2 => Features::EXT2,
            FileSystem::Ext3 => Features::EXT3,
            FileSystem::Ext4 => Features::EXT4,
        };
        let (features, _) = self.ext.wanted_features(features)?;
        let options = BuildOptions { features, ..self.options(Room::default(), None)? };
        match format {
            FileSystem::Ext4 => Ok(Options::Ext(self.with_seals(source, options)?)),
            _ => Ok(Options::Ext(options)),
        }
    }
}

/// Writes the disk.
pub(super) fn run(
    args: &BuildArgs,
    wanted: &[Definition],
    target: Target,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let size = args.room.size_of_disk()?;
    target.refuse_blocks(512, "partition tables are made for sectors of 512 bytes")?;
    let source: Arc<dyn Source + Send> = if args.sources.is_empty() && args.amend.files().is_empty()
    {
        definitions::no_source()?
    } else {
        let purpose = Purpose::Build { latest: source_date_epoch()? };
        let mut tree = args.tree.with_patterns()?;
        tree.dropped.all |= args.ext.drops_xattrs();
        tree.amendments = args.amendments()?;
        args.like.open_sources(args, &tree, purpose, global)?.whole
    };
    let (name, shown) = (args.shown_sources(), progress::shown(global));
    let options = |format: FileSystem, source: &dyn Source| {
        args.options_in_partition(format, source).map_err(Error::from)
    };
    let build = DiskBuild {
        definitions: wanted,
        source,
        name: if name.is_empty() { "without SOURCE" } else { &name },
        traces: &traces::load_all(&args.trace)?,
        storage: args.storage.with(args.chunk),
        options: &options,
        size,
        target: &target,
        progress: &shown,
    };
    let partitions = build.write()?;
    let streamed = target.streamed()?;
    target.finish()?;
    if global.quiet && !global.json {
        return Ok(ExitCode::SUCCESS);
    }
    let path = streamed.as_ref().map_or_else(|| args.output.clone(), name_of);
    let mut written = Written::file(&path);
    let count = u64::try_from(partitions.len()).unwrap_or(u64::MAX);
    if global.json {
        let all: Vec<Value> = (1..).zip(&partitions).map(|(at, one)| value(at, one)).collect();
        written = written.with_value("partitions", all.into());
    } else {
        written = written.with("partitions", count);
    }
    if streamed.is_some() {
        written.under("standard output").tell_on_standard_error(global);
        return Ok(ExitCode::SUCCESS);
    }
    written.tell(global);
    if !global.json {
        (1..).zip(&partitions).for_each(|(number, one)| tell(number, one));
    }
    Ok(ExitCode::SUCCESS)
}

fn value(number: u64, one: &PartitionWritten) -> Value {
    json!({
        "number": number,
        "start": one.entry.start.get(),
        "bytes": one.entry.len.get(),
        "type": one.kind(),
        "name": one.entry.name,
        "uuid": one.entry.id.to_string(),
        "format": one.format,
        "files": one.files,
        "root_hash": one.root_hash,
    })
}

fn tell(number: u64, one: &PartitionWritten) {
    let (start, len) = (grouped(one.entry.start.get()), format_size(one.entry.len));
    let (kind, name) = (one.kind(), &one.entry.name);
    let held = match (one.format, &one.root_hash) {
        (Some("swap"), _) => "swap".into(),
        (Some(format), _) => format!("{format}, {} files", grouped(one.files)),
        (None, Some(root)) => format!("root hash {root}"),
        (None, None) => String::new(),
    };
    let line = format!("{number:>3} {start:>16} {len:>8}  {kind:<16} {name:<16} {held}");
    say!("{}", line.trim_end());
}
