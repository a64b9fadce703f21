//! `seekless optimize --like`: the places of older images.

use super::{OptimizeArgs, gains, report, warn_of_others};
use crate::args::Global;
use crate::failure::Failure;
use crate::progress;
use seekless_compose::formats::OlderImages;
use seekless_compose::rearrange::{self, Rearrangement};
use seekless_compose::traces;
use seekless_images::targets::Target;
use seekless_layout::planner::scattered::scattered_in;
use seekless_layout::replay::replay_for_layout;
use std::process::ExitCode;

/// Opens the older images, whose format is that of the image.
pub(super) fn open(args: &OptimizeArgs) -> Result<Option<OlderImages>, Failure> {
    let place = args.place.place();
    Ok(rearrange::older_images(&args.image, &place, &args.like, args.open.options())?)
}

/// Writes an image whose parts cannot be moved one by one: as a build on the older images does.
pub(super) fn run(
    args: &OptimizeArgs,
    older: &OlderImages,
    target: Target,
    global: &Global,
) -> Result<ExitCode, Failure> {
    let traces = traces::load_all(&args.trace)?;
    let storage = args.storage.with(args.chunk);
    let (place, progress) = (args.place.place(), progress::shown(global));
    let rearrangement = Rearrangement {
        image: &args.image,
        place: &place,
        target: &target,
        written: args.written(),
        storage,
        progress: &progress,
    };
    let likeness = args.likeness();
    let image = rearrangement.rebuild_on(older, likeness, &traces, args.open.options())?;
    let about = |error| Failure::from(error).about(args.image.display());
    let replays = replay_for_layout(image.as_ref(), &traces).map_err(about)?;
    warn_of_others(&args.image, &args.trace, &traces, &replays);
    let scattered = scattered_in(image.as_ref(), &replays, storage).map_err(about)?;
    let gains = gains(args, &rearrangement, image.as_ref(), &traces)?;
    target.finish()?;
    report(args, &gains, &[], &scattered, global)?;
    Ok(ExitCode::SUCCESS)
}
