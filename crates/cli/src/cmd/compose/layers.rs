//! `seekless build --layers`: an image for each layer of a container image.

use super::room::Room;
use super::{BuildArgs, options, with_seals};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use crate::say::say;
use crate::source::{self, Purpose, source_date_epoch};
use crate::uuid::WantedUuid;
use seekless_compose::formats::Options;
use seekless_compose::per_layer::{self, LayerWritten, LayersBuild};
use seekless_compose::{sources, traces};
use seekless_images::Error;
use seekless_report::table::grouped;
use seekless_units::format_size;
use std::process::ExitCode;

/// Writes the images.
pub(super) fn run(args: &BuildArgs, global: &Global) -> Result<ExitCode, Failure> {
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
        sources::refuse_inside(&path, &args.sources)?;
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
        reflink: args.reflink.mode(),
        progress: &shown,
    };
    let written = build.write()?;
    if global.json {
        say!("{}", build.list(&written));
    } else if !global.quiet {
        tell(args, &written);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each image, and the order in which overlayfs takes them.
fn tell(args: &BuildArgs, written: &[LayerWritten]) {
    let directory = args.output.display();
    let word = if written.len() == 1 { "layer" } else { "layers" };
    say!("{directory}: {} {word}", written.len());
    for one in written {
        let (size, files) = (format_size(one.len), grouped(one.files));
        say!("  {}  {size:>8}, {}, {files} files", one.file, one.format);
    }
    let order: Vec<&str> = written.iter().rev().map(|one| one.file.as_str()).collect();
    if order.len() > 1 {
        say!("lowerdir: {} (the mount points of these images, in this order)", order.join(":"));
    }
}
