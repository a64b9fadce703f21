//! The partitions of a disk, written one after the other.

use super::arrange::{Arrangement, Demand, TooSmall, arrange};
use super::{Contents, Definition, FIRST, FileSystem, GRAIN, Sizes, TAIL, VerityRole, swap};
use crate::build::Build;
use crate::formats::Options;
use crate::write::Destination;
use crate::wrong;
use seekless_device::{BlockDevice, DeviceError, Window};
use seekless_fs::FsError;
use seekless_fs::plan::Spare;
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_fs::tree::Tree;
use seekless_images::targets::{Target, copy_range};
use seekless_images::{Error, ErrorKind, Place, Progress};
use seekless_layout::planner::Storage;
use seekless_layout::trace::{EventRef, Events};
use seekless_partition::{Discoverable, Guid, Kind, NewPartition, TableError};
use seekless_source::{Graft, LayeredSource, graft};
use seekless_units::{ByteLen, Lba, format_size};
use seekless_verity::{HASH_BLOCK, RootHash, Verity, VerityError};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The least size of a partition for which none is set, as systemd-repart has it.
const LEAST: u64 = 10 << 20;

/// Sizes that contents need are rounded up to this, so that partitions begin where chunks do.
const ROUND: u64 = 1 << 20;

/// Bytes at the start of each partition from which its identifier is derived.
const IDENTITY: u64 = 128 << 10;

/// The options of a volume of a format that takes a source; its size and label are set later.
pub type OptionsOf<'a> = &'a dyn Fn(FileSystem, &dyn Source) -> Result<Options, Error>;

/// A disk to be made.
pub struct DiskBuild<'a> {
    /// The partitions, in order.
    pub definitions: &'a [Definition],
    /// The tree from which `CopyFiles=` copies.
    pub source: Arc<dyn Source + Send>,
    /// The source's name in errors.
    pub name: &'a str,
    /// Accesses to the source, in order: the blocks that they read come first in their partitions.
    pub traces: &'a [Events],
    /// The storage that it is laid out for.
    pub storage: Storage,
    /// The options of volumes.
    pub options: OptionsOf<'a>,
    /// Bytes of the disk; `None` for the smallest.
    pub size: Option<ByteLen>,
    /// Where it is written.
    pub target: &'a Target,
    /// Is told how far the work is.
    pub progress: &'a dyn Progress,
}

/// A partition that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionWritten {
    /// Its entry in the table.
    pub entry: NewPartition,
    /// The format of its file system, or `swap`.
    pub format: Option<&'static str>,
    /// Files of all kinds in it.
    pub files: u64,
    /// The hash of the tree's root, of a partition with a tree.
    pub root_hash: Option<String>,
}

impl PartitionWritten {
    /// The identifier of its type in the Discoverable Partitions Specification, or its GUID.
    #[must_use]
    pub fn kind(&self) -> String {
        match Discoverable::of(self.entry.kind) {
            Some(known) => known.identifier.into(),
            None => Kind::Gpt(self.entry.kind).to_string(),
        }
    }
}

/// A partition whose contents are known.
struct Prepared<'a> {
    definition: &'a Definition,
    volume: Option<Prepare>,
    /// Least bytes.
    least: u64,
}

/// A file system to be made.
struct Prepare {
    format: FileSystem,
    source: LayeredSource,
    traces: Vec<Events>,
    options: Options,
}

impl DiskBuild<'_> {
    /// Writes the disk. The same arguments give the same bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a size that is not a multiple of 4096;
    /// [`ErrorKind::NoSpace`] for a disk or a partition that is too small, with the size that would
    /// do; [`ErrorKind::System`] for a part that the source lacks; errors of the source and the
    /// device.
    pub fn write(&self) -> Result<Vec<PartitionWritten>, Error> {
        if let Some(size) = self.size.filter(|size| !size.get().is_multiple_of(GRAIN)) {
            let why = format!(": a disk of {size} bytes, no multiple of {GRAIN}");
            return Err(Error::usage(Text::from(Term::Size).then(why)));
        }
        let seed = seed(self.definitions, self.source.tree());
        let mut prepared = Vec::with_capacity(self.definitions.len());
        for (number, definition) in self.definitions.iter().enumerate() {
            let id = Guid::derived(&format!("file system {number} "), &seed);
            let one = self.prepare(definition, id);
            prepared.push(one.map_err(|error| error.about(definition.path.display()))?);
        }
        let arranged = self.arrange(&mut prepared)?;
        let mut written = Vec::with_capacity(prepared.len());
        for (number, (one, &(start, len))) in prepared.iter().zip(&arranged.places).enumerate() {
            let id = Guid::derived(&format!("swap {number} "), &seed);
            self.write_contents(one, (start, len), id)
                .map_err(|error| error.about(one.definition.path.display()))?;
            let definition = one.definition;
            written.push(PartitionWritten {
                entry: NewPartition {
                    kind: definition.kind,
                    id: Guid([0; 16]),
                    name: definition.label.clone(),
                    start,
                    len,
                    attributes: definition.attributes,
                },
                format: match (&definition.contents, &one.volume) {
                    (Contents::Swap, _) => Some("swap"),
                    (_, Some(volume)) => Some(volume.format.name()),
                    (_, None) => None,
                },
                files: one.volume.as_ref().map_or(0, |volume| {
                    u64::try_from(volume.source.tree().nodes().len()).unwrap_or(u64::MAX)
                }),
                root_hash: None,
            });
        }
        self.finish(&arranged, &mut written)?;
        Ok(written)
    }

    /// The contents that a partition will have, and how many bytes they need.
    fn prepare<'d>(&self, definition: &'d Definition, id: Guid) -> Result<Prepared<'d>, Error> {
        let least = match &definition.contents {
            Contents::Nothing => GRAIN,
            Contents::Swap => swap::LEAST,
            Contents::Blocks(path) => blocks(path)?.len().get().max(GRAIN),
            Contents::Files { format, parts, directories } => {
                let source = graft(self.source.clone(), self.name, parts, directories)?;
                let mut options = (self.options)(*format, &source)?;
                label(&mut options, &definition.label, id);
                let traces = self.traces.iter().map(|events| moved(events, parts)).collect();
                let smallest = sized(options.clone(), ByteLen::new(FIRST), None);
                let least = smallest.len(&source).map_err(wrong)?.get();
                let volume = Some(Prepare { format: *format, source, traces, options });
                return Ok(Prepared { definition, volume, least });
            }
        };
        Ok(Prepared { definition, volume: None, least })
    }

    /// The places of all partitions. The length of a hash tree depends on that of the data, which
    /// depends on the room that the tree leaves.
    fn arrange(&self, prepared: &mut [Prepared<'_>]) -> Result<Arrangement, Error> {
        let capacity = self.size.or(self.target.capacity());
        loop {
            let demands: Vec<(Demand, Demand)> = prepared
                .iter()
                .map(|one| Ok((one.demand()?, padding(one.definition.padding))))
                .collect::<Result<_, Error>>()?;
            let arranged = arrange(&demands, capacity).map_err(|TooSmall { needed }| {
                let what = format!("no space: the partitions need at least {needed} bytes");
                Error::new(ErrorKind::NoSpace, what).about(self.target.path().display())
            })?;
            let mut is_enough = true;
            for at in 0..prepared.len() {
                let Some(data) = data_of(prepared, at) else { continue };
                let needed = seekless_verity::tree_len(arranged.places[data].1).get();
                if prepared[at].least < needed {
                    prepared[at].least = needed;
                    is_enough = arranged.places[at].1.get() >= needed && is_enough;
                }
            }
            if is_enough {
                return Ok(arranged);
            }
        }
    }

    fn write_contents(
        &self,
        one: &Prepared<'_>,
        (start, len): (ByteLen, ByteLen),
        id: Guid,
    ) -> Result<(), Error> {
        let label = &one.definition.label;
        if let Some(volume) = &one.volume {
            return self.write_volume(volume, (start, len));
        }
        let device = self.device(start, len)?;
        match &one.definition.contents {
            Contents::Swap => {
                device.write(Lba::ZERO, &swap::header(len, id, label)).map_err(failed)
            }
            Contents::Blocks(path) => {
                let old = blocks(path)?;
                let to = self.target.path();
                copy_range((old.as_ref(), path), (&device, to), 0, old.len().get())
            }
            Contents::Nothing | Contents::Files { .. } => Ok(()),
        }
    }

    fn write_volume(
        &self,
        volume: &Prepare,
        (start, len): (ByteLen, ByteLen),
    ) -> Result<(), Error> {
        let build = Build {
            source: &volume.source,
            name: self.name,
            traces: &volume.traces,
            storage: self.storage,
            destination: Destination { target: self.target, start },
            progress: self.progress,
        };
        let options = sized(volume.options.clone(), start, Some(len));
        let written = build.write(&options, None)?;
        assert!(written.len <= len, "a file system of {} in {len}", written.len);
        Ok(())
    }

    /// A part of the disk, behind which nothing is written yet: the disk ends with it.
    fn device(&self, start: ByteLen, len: ByteLen) -> Result<Window, Error> {
        let end = ByteLen::new(start.get() + len.get());
        let device = self.target.device(end, self.progress)?;
        Window::new(device, Lba::containing(start), len).map_err(failed)
    }

    /// Writes the hash trees and the table.
    fn finish(
        &self,
        arranged: &Arrangement,
        written: &mut [PartitionWritten],
    ) -> Result<(), Error> {
        let about = |error: Error| error.about(self.target.path().display());
        let of = |role: VerityRole, key: &str| {
            let wanted = Some((role, key.to_owned()));
            self.definitions.iter().position(|one| one.verity == wanted)
        };
        let end = ByteLen::new(arranged.disk.get() - TAIL);
        let disk = self.target.disk(end, ByteLen::new(TAIL), self.progress)?;
        for tree in 0..self.definitions.len() {
            let Some((VerityRole::Hash, key)) = &self.definitions[tree].verity else { continue };
            let data = of(VerityRole::Data, key).expect("each tree has data: `parse::pair`");
            let places = (arranged.places[data], arranged.places[tree]);
            let root = self.seal(&disk, places).map_err(about)?;
            (written[data].entry.id, written[tree].entry.id) = halves(&root);
            written[tree].root_hash = Some(root.to_string());
        }
        let mut heads = Vec::new();
        for (definition, one) in self.definitions.iter().zip(written.iter_mut()) {
            let len = usize::try_from(one.entry.len.get().min(IDENTITY)).unwrap_or(usize::MAX);
            let mut head = vec![0; len];
            disk.read_bytes(one.entry.start, &mut head).map_err(|error| about(failed(error)))?;
            // Partitions with equal contents have identifiers of their own.
            head.extend(one.entry.start.get().to_le_bytes());
            if one.entry.id == Guid([0; 16]) {
                one.entry.id = Guid::derived("partition", &head);
            }
            one.entry.id = definition.uuid.unwrap_or(one.entry.id);
            heads.extend(head);
        }
        let entries: Vec<NewPartition> = written.iter().map(|one| one.entry.clone()).collect();
        let id = Guid::derived("disk", &heads);
        seekless_partition::write(disk.as_ref(), id, &entries).map_err(|error| match error {
            TableError::Device(error) => about(failed(error)),
            error => about(Error::new(ErrorKind::Unsupported, error.to_string())),
        })
    }

    /// Writes the hash tree of one partition into another.
    fn seal(
        &self,
        disk: &Arc<dyn BlockDevice>,
        (data, tree): ((ByteLen, ByteLen), (ByteLen, ByteLen)),
    ) -> Result<RootHash, Error> {
        let part = |(start, len): (ByteLen, ByteLen)| {
            Window::new(disk.clone(), Lba::containing(start), len).map_err(failed)
        };
        let (data, tree) = (part(data)?, part(tree)?);
        let verity = Verity::new(&data).map_err(unsealed)?;
        assert!(verity.tree_len() <= tree.len(), "the tree has the room that it needs");
        self.progress.begin(data.len());
        let advance = |bytes| self.progress.advance(ByteLen::new(bytes));
        let root = verity.write(&data, &tree, ByteLen::ZERO, &advance).map_err(unsealed)?;
        self.progress.end();
        Ok(root)
    }
}

impl Prepared<'_> {
    /// The limits of its size.
    fn demand(&self) -> Result<Demand, Error> {
        let Sizes { least, most, weight } = self.definition.sizes;
        let needed = match self.volume {
            Some(_) => self.least.next_multiple_of(ROUND),
            None => self.least.next_multiple_of(GRAIN),
        };
        let most = most.map_or(u64::MAX, ByteLen::get);
        if most < self.least {
            let most = format_size(ByteLen::new(most));
            let what =
                format!("no space: SizeMaxBytes={most}, but {} bytes are needed", self.least);
            let error = Error::new(ErrorKind::NoSpace, what);
            return Err(error.about(self.definition.path.display()));
        }
        let wanted = least.map_or(LEAST, ByteLen::get).max(needed);
        Ok(Demand { least: wanted.min(most), most, weight })
    }
}

/// The place of the data whose tree the definition `at` has.
fn data_of(prepared: &[Prepared<'_>], at: usize) -> Option<usize> {
    let (VerityRole::Hash, key) = prepared[at].definition.verity.as_ref()? else { return None };
    let wanted = Some((VerityRole::Data, key.clone()));
    prepared.iter().position(|one| one.definition.verity == wanted)
}

/// The limits of free space.
fn padding(Sizes { least, most, weight }: Sizes) -> Demand {
    let least = least.map_or(0, ByteLen::get);
    Demand { least, most: most.map_or(u64::MAX, ByteLen::get), weight }
}

/// The file or device of `CopyBlocks=`.
fn blocks(path: &Path) -> Result<Arc<dyn BlockDevice>, Error> {
    let device = seekless_images::device(path, &Place::default())?;
    if device.len() == ByteLen::ZERO || !device.len().get().is_multiple_of(512) {
        let what = format!("{}: not a number of sectors of 512 bytes", path.display());
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(device)
}

/// The events below the parts, by their new paths.
fn moved(events: &Events, parts: &[Graft]) -> Events {
    let mut found = Events::default();
    for event in events.iter() {
        let path = event.path.strip_prefix(b"/").unwrap_or(event.path);
        for path in parts.iter().filter_map(|part| part.moved(path)) {
            let path = [b"/", path.as_slice()].concat();
            found.push_ref(EventRef { path: &path, ..event });
        }
    }
    found
}

/// Sets the label, cut to the length that the format has, and the identifier of a volume.
fn label(options: &mut Options, label: &str, id: Guid) {
    match options {
        Options::Ext(options) => {
            options.label = label.as_bytes()[..label.len().min(16)].to_vec();
            options.uuid = Some(id.0);
        }
        Options::Fat(options) => {
            // As mkfs.fat wants labels: of 11 characters, not in lower case.
            let fits = |letter: char| match letter.to_ascii_uppercase() {
                letter @ ('A'..='Z' | '0'..='9' | ' ' | '-' | '_') => letter,
                _ => '_',
            };
            options.make.label = label.chars().take(11).map(fits).collect::<String>().into_bytes();
            let [first, second, third, fourth, ..] = id.0;
            options.make.id = u32::from_le_bytes([first, second, third, fourth]);
            options.has_id = true;
        }
        Options::Ufs(_) => {}
    }
}

/// Options with a size; without one, of the smallest volume.
fn sized(mut options: Options, start: ByteLen, len: Option<ByteLen>) -> Options {
    match &mut options {
        Options::Ext(options) => {
            options.size = len;
            options.spare = Spare::default();
        }
        Options::Fat(options) => {
            options.make.size = len.unwrap_or_default();
            options.make.hidden = u32::try_from(start.get() / 512).unwrap_or_default();
            options.is_fitted = len.is_none();
            options.spare = Spare::default();
        }
        Options::Ufs(options) => {
            options.make.size = len.unwrap_or_default();
            options.is_fitted = len.is_none();
            options.spare = Spare::default();
        }
    }
    options
}

/// The source of the identifiers of file systems: the definitions, and the names, sizes and
/// times of the source.
fn seed(definitions: &[Definition], tree: &Tree) -> [u8; 32] {
    let mut hash = Sha256::new();
    for definition in definitions {
        // Debug has all settings, but also the path.
        let mut settings = definition.clone();
        settings.path = PathBuf::new();
        hash.update(format!("{settings:?}"));
    }
    for id in tree.ids() {
        let node = tree.node(id);
        hash.update(tree.path(id));
        hash.update([0]);
        hash.update(node.size.to_le_bytes());
        hash.update(node.mtime.secs.to_le_bytes());
    }
    hash.finalize().into()
}

/// The identifiers that the hash of a root gives to the partitions of the data and of the tree: its
/// first 128 bits and its last ones.
fn halves(root: &RootHash) -> (Guid, Guid) {
    let text = root.to_string();
    let guid = |digits: &str| -> Guid {
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-").parse().expect("a hash has hexadecimal digits")
    };
    (guid(&text[..32]), guid(&text[32..]))
}

fn failed(error: DeviceError) -> Error {
    Error::from(FsError::from(error))
}

fn unsealed(error: VerityError) -> Error {
    match error {
        VerityError::Device(error) => failed(error),
        VerityError::Length(_) => Error::new(ErrorKind::Unsupported, error.to_string()),
    }
}

/// Trees have places in whole blocks.
const _: () = assert!(GRAIN.is_multiple_of(HASH_BLOCK));
