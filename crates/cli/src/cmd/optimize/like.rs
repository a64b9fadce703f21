//! `seekless optimize --like`: the places of older images.

use super::{Gains, OptimizeArgs, gains, replays};
use crate::failure::Failure;
use seekless_compose::formats::OlderImages;
use seekless_compose::rearrange::{self, Rearrangement};
use seekless_compose::traces;
use seekless_layout::planner::scattered::{ScatteredFile, scattered_in};

/// Opens the older images, whose format is that of the image.
pub(super) fn open(args: &OptimizeArgs) -> Result<Option<OlderImages>, Failure> {
    let place = args.place.place();
    Ok(rearrange::older_images(&args.image, &place, &args.like, args.open.options())?)
}

/// Writes the image as a build on the older images does.
/// Returns the scores, and the large files that the traces read in small pieces.
pub(super) fn rebuild(
    args: &OptimizeArgs,
    older: &OlderImages,
    rearrangement: &Rearrangement<'_>,
) -> Result<(Gains, Vec<ScatteredFile>), Failure> {
    let traces = traces::load_all(&args.trace)?;
    let likeness = args.likeness();
    let rebuilt = rearrangement.rebuild_on(older, likeness, &traces, args.open.options())?;
    let image = rebuilt.old.as_ref();
    let about = |error| Failure::from(error).about(args.image.display());
    let replays = replays(&args.image, image, &args.trace, &traces)?;
    let scattered = scattered_in(image, &replays, rearrangement.storage).map_err(about)?;
    let gains = gains(args, rearrangement, image, &traces)?;
    Ok((Gains { kept: rebuilt.kept, ..gains }, scattered))
}
