//! `seekless build`: an ext, UFS or FAT image from a tree.

mod amend;
mod definition_args;
mod definitions;
mod disk;
mod ext_args;
mod fat;
mod layers;
mod like;
mod room;
mod seals;
mod ufs;
mod verity;

use crate::args::{Global, OpenArgs, OutputFormatArg, ReflinkArgs, StorageArg};
use crate::failure::{Failure, Kind};
use crate::fat_args::{FatBuildArgs, FatMakeArgs};
use crate::format_args::{EXT_IMAGES, FAT_IMAGES, FormatArgs, UFS_IMAGES};
use crate::progress;
use crate::say::say;
use crate::source::{self, Purpose, SourceArgs, source_date_epoch, temp_dir};
use crate::ufs_args::UfsArgs;
use crate::uuid::WantedUuid;
use crate::written::Written;
use amend::AmendArgs;
use clap::{ArgGroup, Args, ValueEnum};
use definition_args::DefinitionArgs;
use disk::DiskArgs;
use ext_args::ExtArgs;
use layers::LayerArgs;
use like::LikeArgs;
use room::{Room, RoomArgs};
use seekless_compose::build::{Build, Written as BuildResult};
use seekless_compose::formats::{ExtBases, OlderImages, Options};
use seekless_compose::per_layer::{self, LayersBuild};
use seekless_compose::write::Destination;
use seekless_compose::{traces, wrong};
use seekless_ext::{BuildOptions, Features, LeftOut};
use seekless_formats::{EXT, FAT, FFS, KnownFormat};
use seekless_fs::Timestamp;
use seekless_fs::source::Source;
use seekless_images::output::{self, name_of};
use seekless_images::targets::Target;
use seekless_images::{Error, Place, Stop};
use seekless_layout::score::parse_chunk;
use seekless_source::Amendments;
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use verity::VerityArgs;

/// Build an ext4, UFS or FAT image from directories, tar archives, container images or other images
#[derive(Args, Debug)]
#[command(after_help = "\
The image has the default features of mke2fs for ext4, of newfs for UFS or of
mkfs.fat for FAT, and is as small as its contents allow unless --size or --free is given. The same source gives the
same bytes. The output file appears only when it is complete.

A block device is written in place: it must not be in use, and if it holds something
that is known, --force is needed. It is made zeros first as far as the image reaches,
and its beginning is written last: until then it shows no file system. Files named
*.qcow2, *.vhdx and *.vmdk are written by qemu-img (package qemu-utils), files named
*.simg as Android sparse images, files named *.vhd as fixed VHD images.
With -o - the raw image goes to standard output when it is complete, holes as zeros;
what was written is then said on standard error, with --json as well.

Container images named docker://HOST/NAME[:TAG|@DIGEST] are fetched from their registry
into a cache (--cache-dir), with the credentials that skopeo, podman or docker have
for it; see docs/common.md.

Several sources are laid over one another, as the layers of a container image:
a file replaces what an earlier source has under its path, a directory is
merged with one of an earlier source and has its own owner, mode and times then.
A directory that an archive has no entry for stays as it is, and symlinks on the
way to what is in it are followed.

With --layers, each layer of a container image becomes an image of its own, for
overlayfs to lay over one another; with --whiteouts alone, the archive of one layer does.
See docs/layers.md.

On file systems that share blocks between files (Btrfs, XFS) an image gets the blocks of
the source's files instead of copies, unless --reflink says otherwise; its bytes are
the same. The source may change afterwards: the image does not.

If the environment variable SOURCE_DATE_EPOCH is set (seconds since 1970), it is
the creation time of the file system, and later modification times of files are
set to it. Otherwise the creation time is the latest modification time in the
source.

Examples:
  seekless build rootfs/ -o disk.img
  seekless build rootfs.tar.zst -o disk.img --size 2G --label root
  zcat layer.tar.gz | seekless build - -o disk.img
  seekless build rootfs/ -o disk.img --trace boot.trace
  seekless build oci-layout/ -o disk.img --exclude 'usr/share/doc/*'
  seekless build rootfs.tar.zst overlay/ -o disk.img
  docker save debian:12 | seekless build - overlay/ -o disk.img --platform linux/amd64
  skopeo copy docker://debian:12 dir:debian && seekless build debian/ -o disk.img
  seekless build docker://debian:12 -o disk.img
  seekless build docker://localhost:5000/app overlay/ -o disk.img --platform linux/arm64
  seekless build oci-layout/ --layers -o layers/
  seekless build oci-layout/ --layers -o layers/ --reuse
  seekless build oci-layout/ --layers --whiteouts overlay-user -o user-layers/
  seekless build rootfs/ -o disk.img --size +1G
  seekless build rootfs/ -o disk.img --free 20%
  seekless build rootfs/ -o week2.img --like week1.img
  seekless build rootfs/ -o week2.img --like week1.layout
  seekless build rootfs.tar.zst overlay/ -o app.img --share
  seekless build rootfs/ -o disk.img --uuid random
  seekless build rootfs/ -o disk.img --reflink never
  seekless build rootfs/ -o /dev/vg0/root
  seekless build rootfs/ -o /dev/vg0/root --force --size 4G
  seekless build rootfs/ -o disk.qcow2 --size 10G
  seekless build rootfs/ -o system.simg
  seekless build rootfs/ -o disk.vhd --disk --size 1G
  seekless build rootfs/ -o - | zstd > disk.img.zst
  SOURCE_DATE_EPOCH=1700000000 seekless build rootfs/ -o disk.img
  docker save debian:12 | seekless build - -o disk.img
  seekless build images.tar -o disk.img --tag debian:12
  seekless build rootfs/ -o disk.img --compat debian11,grub2.06
  seekless build rootfs/ -o disk.img --disk --esp esp/ --size +1G
  seekless build rootfs/ -o disk.img --definitions repart.d/ --size 4G
  seekless build rootfs/ -o disk.img --exclude '*' --include 'usr/lib/'
  seekless build rootfs/ -o disk.img --file-contexts file_contexts
  seekless build rootfs/ -o disk.img -D device_table.txt
  seekless build rootfs/ -o disk.img --manifest rootfs.mtree --only-listed
  cd rootfs && seekless build --manifest ../rootfs.mtree -o ../disk.img
  seekless build rootfs/ -o disk.img --verity
  seekless build rootfs/ -o disk.img --verity-tree disk.verity --root-hash-file disk.roothash
  seekless build old.img -o new.img --features ^has_journal --inode-size 512
  seekless build rootfs.tar -o disk.img --format ufs2 -b 16K -f 2K --soft-updates
  seekless build esp/ -o esp.img --format fat32 -L EFI --drop owners,modes
  seekless build esp.tar -o esp.img --format fat32 --size 512M --owner 0:0
  seekless build esp/ -o new.img --format fat32 --like esp.img --drop owners,modes")]
#[command(group = ArgGroup::new("placed").args(["trace", "like", "share"]).multiple(true))]
pub(crate) struct BuildArgs {
    /// Directory, tar archive (plain, gzip, zstd, xz or bzip2), container image (OCI layout
    /// or archive, docker save, podman save, skopeo's dir:, or docker://NAME in a registry), file
    /// system image (raw, qcow2, Android sparse or on a block device), or - for an archive on
    /// standard input. Of several, each is laid over those before it
    #[arg(required_unless_present_any = ["manifest", "definitions"], value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The image to write: a file, - for standard output, or a block device, which the file
    /// system fills unless --size or --free is given; with --layers, a directory
    #[arg(short, long, value_name = "IMG")]
    output: PathBuf,
    /// Format of the output file [default: by the end of its name, such as .qcow2; else raw]
    #[arg(long, value_enum, value_name = "FORMAT")]
    output_format: Option<OutputFormatArg>,
    /// Place the data accessed in these traces first, in the order of first
    /// access
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// With --trace, align the start of the hot part to a multiple of this size; with --like and
    /// --share, the unit in which images share
    #[arg(long, value_parser = parse_chunk, default_value = "512K", requires = "placed")]
    chunk: ByteLen,
    /// With --trace, the storage to lay out for
    #[arg(long = "for", value_enum, value_name = "STORAGE", default_value_t, requires = "trace")]
    storage: StorageArg,
    /// Replace the output file if it exists, or overwrite the contents of the block device. An input
    /// is never replaced
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reflink: ReflinkArgs,
    #[command(flatten)]
    room: RoomArgs,
    /// Format; for ext, also the default set of features
    #[arg(long, value_enum, default_value_t = Family::Ext4)]
    format: Family,
    /// Block size in bytes, from 1024 to 65536 [default: 4096, or 32768 for UFS]
    #[arg(long, short = 'b', value_parser = parse_size)]
    block_size: Option<ByteLen>,
    /// Bytes of space per inode (ext, UFS) [default: 16K of --size, else chosen from the
    /// contents]
    #[arg(long, short = 'i', value_parser = parse_size, conflicts_with = "inodes")]
    bytes_per_inode: Option<ByteLen>,
    /// Volume label (at most 16 bytes, 31 for UFS, 11 characters for FAT); an empty one with --like
    /// removes that of the older image [default: none, or that of the older image]
    #[arg(long, short = 'L')]
    label: Option<String>,
    /// Volume UUID; `random` or `time` for a new one in each image, `clear` for zeros (ext;
    /// FAT: `random` only) [default: derived from the contents]
    #[arg(long, short = 'U', value_parser = WantedUuid::parse)]
    uuid: Option<WantedUuid>,
    /// Percentage of blocks reserved for root [default: 5, or 8 for UFS]
    #[arg(long, short = 'm', value_parser = parse_percent)]
    reserved: Option<u32>,
    #[command(flatten)]
    like: LikeArgs,
    #[command(flatten)]
    disk: DiskArgs,
    #[command(flatten)]
    partitions: DefinitionArgs,
    #[command(flatten)]
    layers: LayerArgs,
    #[command(flatten)]
    verity: VerityArgs,
    #[command(flatten)]
    tree: SourceArgs,
    #[command(flatten)]
    amend: AmendArgs,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    ext: FormatArgs<ExtArgs>,
    #[command(flatten)]
    ufs: FormatArgs<UfsArgs>,
    #[command(flatten)]
    fat: FormatArgs<FatMakeArgs>,
    #[command(flatten)]
    fat_tree: FatBuildArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ext2,
    Ext3,
    Ext4,
    Ufs1,
    Ufs2,
    /// FAT32, FAT16 or FAT12, as mkfs.fat chooses
    Fat,
    Fat12,
    Fat16,
    Fat32,
}

impl Family {
    /// Its row in the table of formats.
    const fn known(self) -> &'static KnownFormat {
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => &EXT,
            Self::Ufs1 | Self::Ufs2 => &FFS,
            Self::Fat | Self::Fat12 | Self::Fat16 | Self::Fat32 => &FAT,
        }
    }
}

impl BuildArgs {
    /// The sources, as messages name them.
    fn shown_sources(&self) -> String {
        let sources = match self.sources.as_slice() {
            [] => self.amend.files().into_iter().take(1).collect(),
            sources => sources.to_vec(),
        };
        sources.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// All files that are read: no output may replace one of them.
    fn inputs(&self) -> Result<Vec<PathBuf>, Failure> {
        let sources = self.sources.iter().chain(self.disk.source()).chain(self.like.images());
        let lists = self.trace.iter().chain(self.tree.pattern_files());
        let mut inputs: Vec<PathBuf> = sources.chain(lists).cloned().collect();
        inputs.extend(self.amend.files());
        if let Some(dir) = self.partitions.directory() {
            inputs.extend(seekless_compose::definitions::files(dir)?);
        }
        Ok(inputs)
    }

    /// The features of the format, or of the older image.
    fn plain_features(&self, bases: Option<&ExtBases>) -> Features {
        match (bases, self.format) {
            (Some(bases), _) => bases.volume().options().features,
            (None, Family::Ext2) => Features::EXT2,
            (None, Family::Ext3) => Features::EXT3,
            (None, _) => Features::EXT4,
        }
    }

    fn options(&self, room: Room, bases: Option<&ExtBases>) -> Result<BuildOptions, Failure> {
        let plain = bases.map_or_else(BuildOptions::default, |bases| bases.volume().options());
        let (features, _) = self.ext.wanted_features(self.plain_features(bases))?;
        let fresh_uuid = self.uuid.map(WantedUuid::bytes).transpose()?;
        let made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
        let block_size = self.block_size.map_or(Ok(plain.block_size), small)?;
        let same_blocks = block_size == plain.block_size;
        let mut options = BuildOptions {
            size: room.whole(),
            spare: room.spare(),
            block_size,
            inode_ratio: self.bytes_per_inode.map(small).transpose()?,
            features,
            label: self.label.as_ref().map_or(plain.label, |label| label.clone().into_bytes()),
            uuid: fresh_uuid.or(plain.uuid),
            journal_size: plain.journal_size.filter(|_| same_blocks),
            reserved: self.reserved.unwrap_or(plain.reserved),
            // The older file system goes on.
            made: plain.made.or(made),
            ..plain
        };
        self.ext.apply(&mut options)?;
        if bases.is_some() && options.resize_limit.is_some() {
            let what = "-E resize: the room for descriptors is that of the older image";
            return Err(Failure::usage(what));
        }
        if (bases.is_some() || self.like.is_share()) && options.packs_metadata {
            let what = "-E packed_meta_blocks: with --like and --share, groups have their places";
            return Err(Failure::usage(what));
        }
        Ok(options)
    }

    /// The changes to the whole tree.
    fn amendments(&self) -> Result<Amendments, Failure> {
        let is_ext = self.fat_width().is_none() && self.ufs_version().is_none();
        let lost_and_found = is_ext.then(|| self.ext.makes_lost_and_found());
        let amendments = self.amend.read(!self.sources.is_empty(), lost_and_found)?;
        let image = Some(&self.output).filter(|_| !self.is_streamed());
        for output in self.verity.outputs().chain(image) {
            output::refuse_inputs(output, amendments.host_files())?;
        }
        Ok(amendments)
    }

    /// The place of the file system in the output.
    fn place(&self) -> Result<Place, Failure> {
        let Some(offset) = self.ext.offset()? else { return Ok(self.disk.place()) };
        let is_disk = self.disk.is_wanted() || self.partitions.directory().is_some();
        if is_disk || self.verity.is_wanted() {
            let what = "-E offset: not with --disk, --definitions and --verity";
            return Err(Failure::usage(what));
        }
        Ok(Place { partition: None, offset: Some(offset) })
    }

    /// Whether the image is written to standard output.
    fn is_streamed(&self) -> bool {
        self.output.as_os_str() == "-"
    }
}

/// A number of bytes that a format has 32 bits for.
fn small(len: ByteLen) -> Result<u32, Failure> {
    u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
}

pub(crate) fn run(args: &BuildArgs, global: &Global) -> Result<ExitCode, Failure> {
    if args.layers.is_wanted() {
        return write_per_layer(args, global);
    }
    // Errors in the arguments come before any access to files but older images and definitions.
    let arch = args.disk.architecture();
    let directory = args.partitions.directory();
    let partitions = directory.map(|dir| seekless_compose::definitions::read(dir, arch));
    let partitions = partitions.transpose()?;
    let bases = args.like.open(args)?;
    options(args, args.room.room(), bases.as_ref())?;
    let place = args.place()?;
    let format = args.output_format.map(Into::into);
    let inputs = args.inputs()?;
    let target = if args.is_streamed() {
        Target::standard_output(format, &temp_dir())?
    } else {
        Target::create(&args.output, args.force, format, &inputs)?
    };
    if place.offset.is_some() {
        target.refuse_offset()?;
    }
    let target = target.with_reflink(args.reflink.mode())?;
    if let Some(partitions) = &partitions {
        return definitions::run(args, partitions, target, global);
    }
    let options = options(args, room_on(args, &target)?, bases.as_ref())?;
    if args.disk.is_wanted() {
        target.refuse_blocks(512, "partition tables are made for sectors of 512 bytes")?;
    }
    target.refuse_blocks(options.unit(), see(&options))?;
    let seal = args.verity.begin(&args.output, args.force, &inputs)?;
    let purpose = Purpose::Build { latest: source_date_epoch()? };
    let mut tree_args = args.tree.with_patterns()?;
    tree_args.dropped = args.fat_tree.xattrs(args.fat_width().is_some());
    tree_args.dropped.all |= args.ext.drops_xattrs();
    tree_args.amendments = args.amendments()?;
    tree_args.whiteouts = args.layers.of_archive();
    if let Some(form) = tree_args.whiteouts {
        per_layer::check(&options, form)?;
    }
    let steps = args.like.open_sources(args, &tree_args, purpose, global)?;
    let disk = args.disk.begin(args, &target, global)?;
    let start = disk.as_ref().map(|disk| disk.root()).or(place.offset).unwrap_or_default();
    let source = steps.whole.as_ref();
    let (name, progress) = (args.shown_sources(), progress::shown(global));
    let build = Build {
        source,
        name: &name,
        traces: &traces::load_all(&args.trace)?,
        storage: args.storage.with(args.chunk),
        destination: Destination { target: &target, start },
        progress: &progress,
    };
    let written = if args.like.is_share() {
        write_shared(args, build, &options, &steps.below)
    } else {
        write(args, build, options, bases.as_ref())
    };
    let BuildResult { len: size, kept } =
        written.map_err(|failure| on_device(failure, args, &target))?;
    if let Some(disk) = &disk {
        disk.finish(args, &target, size, global)?;
    }
    if place.offset.is_some() {
        target.keep_around(start, size, &progress)?;
    }
    let sealed = args.verity.seal(&target, size, seal, global)?;
    let streamed = target.streamed()?;
    target.finish()?;
    if !global.quiet || global.json {
        let files = source.tree().nodes().len() as u64;
        let path = streamed.as_ref().map_or_else(|| args.output.clone(), name_of);
        let written = Written::image_in(&path, &place, files)?;
        let is_fresh = args.uuid.is_some_and(WantedUuid::is_fresh);
        let written = if is_fresh { written.with_uuid(&place)? } else { written };
        let written = kept
            .iter()
            .fold(written, |written, (taken, moved)| written.with_likeness(taken, moved));
        let written = sealed.iter().fold(written, |written, sealed| sealed.tell(written));
        if streamed.is_some() {
            // The image is on standard output: the summary goes to standard error.
            written.under("standard output").tell_on_standard_error(global);
        } else {
            written.tell(global);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The option that sets the unit of writes.
fn see(options: &Options) -> &'static str {
    match options {
        Options::Ext(_) => "see --block-size",
        Options::Ufs(_) => "see --fragment-size",
        Options::Fat(_) => "see --sector-size",
    }
}

/// The room for the file system. A device is filled, except for the partition table or the hash
/// tree, unless a size or free space was given.
fn room_on(args: &BuildArgs, target: &Target) -> Result<Room, Failure> {
    let Some(capacity) = target.capacity() else { return Ok(args.room.room()) };
    let (left, taken) = if args.disk.is_wanted() {
        (
            args.disk.room_for_root(capacity),
            "its partition table and EFI system partition need more",
        )
    } else {
        (args.verity.room_for_data(capacity), "its hash tree needs more")
    };
    let too_small = || {
        let path = args.output.display();
        let what = format!("{path}: the device has only {capacity} bytes: {taken}");
        Failure::new(Kind::NoSpace, what)
    };
    Ok(args.room.on_device(left.ok_or_else(too_small)?))
}

/// Adds the size of the device to an error of lack of space; the message has the size that is
/// needed.
fn on_device(failure: Failure, args: &BuildArgs, target: &Target) -> Failure {
    match target.capacity() {
        // After the first write, lack of space is an error of the device itself.
        Some(capacity) if failure.is_no_space() && !target.is_touched() => {
            failure.hint(format!("{} has {capacity} bytes", args.output.display()))
        }
        _ => failure,
    }
}

fn options(args: &BuildArgs, room: Room, bases: Option<&OlderImages>) -> Result<Options, Failure> {
    let options = if let Some(width) = args.fat_width() {
        Options::Fat(args.fat_options(width, room, bases.and_then(OlderImages::fat))?)
    } else if let Some(version) = args.ufs_version() {
        Options::Ufs(args.ufs_options(version, room, bases.and_then(OlderImages::ufs))?)
    } else {
        Options::Ext(args.options(room, bases.and_then(OlderImages::ext))?)
    };
    if !matches!(options, Options::Fat(_)) {
        args.fat.refuse(FAT_IMAGES)?;
        args.fat_tree.refuse()?;
    }
    if !matches!(options, Options::Ufs(_)) {
        args.ufs.refuse(UFS_IMAGES)?;
    }
    if !matches!(options, Options::Ext(_)) {
        args.ext.refuse(EXT_IMAGES)?;
    }
    options.check().map_err(wrong)?;
    Ok(options)
}

/// Writes an image, on the base of the older ones if there are any.
fn write(
    args: &BuildArgs,
    build: Build<'_>,
    options: Options,
    bases: Option<&OlderImages>,
) -> Result<BuildResult, Failure> {
    let options = match options {
        Options::Ext(options) => {
            Options::Ext(with_seals(args, build.source, options, bases.and_then(OlderImages::ext))?)
        }
        other => other,
    };
    Ok(build.write(&options, bases.map(|bases| (bases, args.like.likeness())))?)
}

/// Writes an image in which each of its layers lies where it lies in other images.
fn write_shared(
    args: &BuildArgs,
    build: Build<'_>,
    options: &Options,
    below: &[Arc<dyn Source + Send>],
) -> Result<BuildResult, Failure> {
    let Options::Ext(options) = options else {
        return Err(Failure::usage("--share is for ext images"));
    };
    let options = with_seals(args, build.source, options.clone(), None)?;
    let len = build.ext_in_layers(below, &options, args.like.freed_by_sources())?;
    Ok(BuildResult { len, kept: None })
}

/// Writes an image for each layer of a container image.
fn write_per_layer(args: &BuildArgs, global: &Global) -> Result<ExitCode, Failure> {
    let [source] = args.sources.as_slice() else {
        return Err(Failure::usage("--layers takes one source, a container image"));
    };
    if args.is_streamed() {
        return Err(Failure::usage("--layers writes several images: -o is their directory"));
    }
    if args.ext.offset()?.is_some() {
        return Err(Failure::usage("-E offset: not with --layers"));
    }
    let of_layer = || options(args, Room::default(), None);
    let plain = of_layer()?;
    per_layer::check(&plain, args.layers.whiteouts())?;
    for path in [args.output.clone(), args.output.join(per_layer::LIST)] {
        output::refuse_inputs(&path, &args.sources)?;
    }
    let purpose = Purpose::Build { latest: source_date_epoch()? };
    let mut tree = args.tree.with_patterns()?;
    tree.dropped.all |= args.ext.drops_xattrs();
    let (whiteouts, image) = (args.layers.whiteouts(), args.open.options());
    let image = source::open_apart(source, &tree, image, whiteouts, purpose, global)?;
    if let Options::Ext(options) = plain {
        // Files of archives are not sealed: only warnings.
        with_seals(args, image.whole.as_ref(), options, None)?;
    }
    let (name, shown) = (args.shown_sources(), progress::shown(global));
    let build = LayersBuild {
        image: &image,
        whiteouts,
        name: &name,
        traces: &traces::load_all(&args.trace)?,
        storage: args.storage.with(args.chunk),
        options: &|| of_layer().map_err(Error::from),
        uuid: match args.uuid {
            Some(WantedUuid::Given(uuid)) if uuid != [0; 16] => Some(uuid),
            _ => None,
        },
        directory: &args.output,
        force: args.force,
        reuses: args.layers.reuses(),
        inputs: &args.inputs()?,
        reflink: args.reflink.mode(),
        progress: &shown,
        stop: &Stop::new(),
    };
    let written = build.write()?;
    if global.json {
        say!("{}", build.list(&written));
    } else if !global.quiet {
        layers::tell(&args.output, &written);
    }
    Ok(ExitCode::SUCCESS)
}

/// Options with the features that the files of a source need. Warns of those that are disabled with
/// another one.
fn with_seals(
    args: &BuildArgs,
    source: &dyn Source,
    options: BuildOptions,
    bases: Option<&ExtBases>,
) -> Result<BuildOptions, Failure> {
    let (_, left_out) = args.ext.wanted_features(args.plain_features(bases))?;
    for LeftOut { feature, needs } in left_out {
        crate::say::warning!("{feature} is disabled too: it depends on {needs}");
    }
    args.with_seals(source, options)
}

/// A percentage with up to two decimals, in hundredths of a percent.
fn parse_percent(text: &str) -> Result<u32, String> {
    let bad = || format!("'{text}' is not a percentage from 0 to 50");
    if text.starts_with('+') {
        return Err(bad());
    }
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| bad())?;
    if (0.0..=50.0).contains(&value) { Ok((value * 100.0).round() as u32) } else { Err(bad()) }
}
