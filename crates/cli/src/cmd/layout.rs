//! `seekless layout`: a list of an older image, for images that are to be like it.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::written::Written;
use clap::Args;
use seekless_compose::layout_list::{ListRequest, MadeList};
use seekless_images::Output;
use seekless_units::{ByteLen, parse_size};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a layout list: a small file that stands for an image in `build --like`
#[derive(Args, Debug)]
#[command(after_help = "\
A list has all that `build --like` and `optimize --like` read of an older image: its
metadata, with names and attributes of files, and digests of the contents. Images
that are like the list have the same bytes as those that are like the image. Contents
are not in it, except those that are stored in inodes; --freed keep needs the image.

Ext, FAT and UFS images can be listed. An image that is damaged or mounted is refused, as by
--like. The list appears only when it is complete, and the same image gives the same list.

Examples:
  seekless layout week1.img -o week1.layout
  seekless layout disk.qcow2 -o disk.layout
  seekless layout cloud.img --partition 1 -o cloud.layout
  seekless layout week1.img -o - > week1.layout
  seekless build rootfs/ -o week2.img --like week1.layout")]
pub(crate) struct LayoutArgs {
    /// Image: a file (raw or qcow2), or a block device
    image: PathBuf,
    /// The list to write, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
    /// Bytes of contents in each block that has a digest: a power of two from 512 on. An image with
    /// smaller blocks or clusters cannot be like the list [default: the block or cluster size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    digest_unit: Option<ByteLen>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &LayoutArgs, global: &Global) -> Result<ExitCode, Failure> {
    let place = args.place.place();
    let too_large = |_| Failure::usage("--digest-unit is too large");
    let unit = args.digest_unit.map(|unit| u32::try_from(unit.get()).map_err(too_large));
    let request = ListRequest {
        image: &args.image,
        place: &place,
        open: args.open.options(),
        unit: unit.transpose()?,
    };
    if args.output.as_os_str() == "-" {
        let list = request.make()?;
        let failed = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(&list.bytes).and_then(|()| out.flush())
            && failed(&error)
        {
            return Err(Failure::io("standard output", &error));
        }
        let written = Written::file(Path::new("-")).under("standard output");
        let written = written.with_number("bytes", "bytes", list.bytes.len() as u64);
        tell(written, &list).tell_on_standard_error(global);
        return Ok(ExitCode::SUCCESS);
    }
    let output = Output::create(&args.output, args.force, [&args.image])?;
    let list = request.make()?;
    let written = output.file()?.write_all(&list.bytes);
    written.map_err(|error| Failure::io(args.output.display(), &error))?;
    output.finish()?;
    tell(Written::file(&args.output), &list).tell(global);
    Ok(ExitCode::SUCCESS)
}

/// Adds the size of the image, and the number of its files.
fn tell(written: Written, list: &MadeList) -> Written {
    let len = list.volume_len.get();
    written.with_number("image_bytes", "image bytes", len).with("files", list.files)
}
