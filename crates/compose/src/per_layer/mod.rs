//! An image for each layer of a container image, to be laid over one another by overlayfs when they
//! are mounted.

mod reuse;
mod traces;

pub use seekless_source::oci::{Apart, Whiteouts};

use crate::build::Build;
use crate::formats::Options;
use crate::write::Destination;
use rayon::prelude::*;
use reuse::{Earlier, Inputs, Present, shown};
use seekless_fs::format::OpenOptions;
use seekless_fs::term::{Term, Text};
use seekless_images::output::{self, in_the_way, to_replace};
use seekless_images::targets::{OutputFormat, Target};
use seekless_images::{Error, ErrorKind, Place, Progress, ReflinkMode, Stop};
use seekless_layout::planner::Storage;
use seekless_layout::trace::Events;
use seekless_units::ByteLen;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The name of the list of layers beside their images.
pub const LIST: &str = "layers.json";

/// Digits of a layer's digest in the name of its image.
const SHOWN_DIGITS: usize = 12;

/// Images to be made of the layers of a container image.
pub struct LayersBuild<'a> {
    /// The layers.
    pub image: &'a Apart,
    /// The form of their whiteouts.
    pub whiteouts: Whiteouts,
    /// The container image's name in errors.
    pub name: &'a str,
    /// Accesses to the whole, in order: in each layer, the blocks that they read of it come first.
    pub traces: &'a [Events],
    /// The storage that the images are laid out for.
    pub storage: Storage,
    /// The options of a volume, for each layer.
    pub options: &'a dyn Fn() -> Result<Options, Error>,
    /// Volumes of ext get identifiers derived from this one; without it, those of their options.
    pub uuid: Option<[u8; 16]>,
    /// The directory that the images are written to. It is created if only its parent exists.
    pub directory: &'a Path,
    /// Whether existing files are replaced.
    pub force: bool,
    /// Whether images of an earlier run are used again, or replaced if their inputs were others.
    /// Without `force`, files that the list of that run does not describe are errors. The digests of
    /// all images are computed, which later runs need.
    pub reuses: bool,
    /// Files that are read: none is replaced.
    pub inputs: &'a [PathBuf],
    /// Whether contents are cloned.
    pub reflink: ReflinkMode,
    /// Receives the progress of the work.
    pub progress: &'a dyn Progress,
    /// Lets the work be stopped: after the request no image is written or gets its name.
    pub stop: &'a Stop,
}

/// The image of a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerWritten {
    /// The SHA-256 of the layer's archive, not compressed: `sha256:` and hexadecimal digits.
    pub diff_id: String,
    /// That of the layer's archive as the container image has it.
    pub digest: String,
    /// The digest of this layer and those below it, as the image specification of OCI chains them.
    /// With equal options, and without traces, the image depends on nothing else.
    pub chain_id: String,
    /// The name of the image in the directory.
    pub file: String,
    /// Its length.
    pub len: ByteLen,
    /// Its format, as `ext4`.
    pub format: String,
    /// The number of its files of all kinds, whiteouts included.
    pub files: u64,
    /// The SHA-256 of all that the image depends on: the chain ID, the layer's files and their
    /// attributes, the options of the volume, the accesses that lay it out, and the version of this
    /// program. Images with the same inputs are equal.
    pub inputs: String,
    /// The SHA-256 of the image, if the run may use images again. Otherwise it is not computed, which
    /// would take a considerable part of the time of the build.
    pub sha256: Option<String>,
    /// Whether the image is that of an earlier run.
    pub is_reused: bool,
}

/// An image that is to be written, or used again.
struct Planned {
    chain_id: String,
    /// The name of its file.
    file: String,
    options: Options,
    inputs: String,
    /// Where it is written; `None` if it is used again.
    target: Option<Target>,
    /// The SHA-256 of the image, once it is computed.
    sha256: Option<String>,
}

impl LayersBuild<'_> {
    /// Writes all images, the lowest layer first, and the list [`LIST`]. They get their names when
    /// all of them are complete, the list last.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind) for a format without device nodes and
    /// attributes, and for a directory that is another file;
    /// [`ErrorKind::System`](seekless_images::ErrorKind) for files that exist, unless they are
    /// replaced or used again; [`ErrorKind::Corrupt`](seekless_images::ErrorKind) for a damaged list
    /// of an earlier run, unless it is replaced; as [`Build::write`].
    pub fn write(&self) -> Result<Vec<LayerWritten>, Error> {
        check(&(self.options)()?, self.whiteouts)?;
        let is_new = create(self.directory)?;
        let written = self.write_in();
        if written.is_err() && is_new {
            // Without files of others in it.
            let _ = fs::remove_dir(self.directory);
        }
        written
    }

    fn write_in(&self) -> Result<Vec<LayerWritten>, Error> {
        let list = self.list_path();
        let earlier = match self.reuses.then(|| Earlier::read(self.directory)) {
            Some(Err(error)) if !self.force || error.kind() != ErrorKind::Corrupt => {
                return Err(error);
            }
            Some(Ok(earlier)) => earlier,
            _ => None,
        };
        if !self.force && earlier.is_none() && list.symlink_metadata().is_ok() {
            return Err(in_the_way(&list, to_replace()));
        }
        let layers = &self.image.layers;
        output::refuse_inputs(&list, self.inputs)?;
        let trees = layers.iter().map(|layer| layer.source.tree()).collect();
        let traces = traces::split(self.traces, self.image.whole.tree(), trees);
        let mut planned = self.plan(&traces, &earlier.unwrap_or_default())?;
        for (nth, (layer, planned)) in layers.iter().zip(&planned).enumerate() {
            let Some(target) = &planned.target else { continue };
            let build = Build {
                source: layer.source.as_ref(),
                name: &format!("{}: layer {nth}", self.name),
                traces: &traces[nth],
                storage: self.storage,
                destination: Destination::whole(target),
                progress: self.progress,
            };
            build.write(&planned.options, None)?;
        }
        if self.reuses {
            Self::digest(&mut planned)?;
        }
        if planned.iter().any(|one| one.target.is_some()) && list.is_file() {
            // An older list must not stand beside images that it does not describe.
            match fs::remove_file(&list) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(list.display(), &error));
                }
                _ => {}
            }
        }
        let written = self.finish(planned)?;
        let text = format!("{}\n", self.list(&written));
        if fs::read(&list).ok().as_deref() != Some(text.as_bytes()) {
            output::replace(&list, self.inputs, |out| out.write_all(text.as_bytes()))?;
        }
        Ok(written)
    }

    /// The file of the list: the target of a link, which stays.
    fn list_path(&self) -> PathBuf {
        let path = self.directory.join(LIST);
        let target = if path.is_symlink() { path.canonicalize().ok() } else { None };
        target.filter(|target| target.is_file()).unwrap_or(path)
    }

    /// Decides which images are used again, and begins the others. `traces` are those of each layer.
    fn plan(&self, traces: &[Vec<Events>], earlier: &Earlier) -> Result<Vec<Planned>, Error> {
        let layers = &self.image.layers;
        let mut planned = Vec::with_capacity(layers.len());
        for (nth, chain_id) in chain_ids(layers.iter().map(|layer| &layer.diff_id)).enumerate() {
            let options = self.options_of(&chain_id)?;
            let inputs = Inputs {
                chain_id: &chain_id,
                tree: layers[nth].source.tree(),
                options: &options,
                traces: &traces[nth],
                storage: self.storage,
            };
            let inputs = inputs.digest();
            planned.push(Planned {
                chain_id,
                file: self.file(nth),
                options,
                inputs,
                target: None,
                sha256: None,
            });
        }
        let (directory, stop) = (self.directory, self.stop);
        let present = planned
            .par_iter()
            .map(|one| earlier.present(directory, (&one.file, &one.inputs), stop));
        let present: Vec<Present> = present.collect::<Result<_, Error>>()?;
        for (one, present) in planned.iter_mut().zip(present) {
            let path = directory.join(&one.file);
            let is_replaced = match present {
                Present::Same(sha256) => {
                    one.sha256 = Some(sha256);
                    continue;
                }
                Present::Outdated => true,
                Present::Foreign { is_listed } if self.reuses && !self.force => {
                    return Err(reuse::foreign(&path, is_listed));
                }
                Present::Foreign { is_listed } => {
                    if is_listed {
                        tracing::warn!(
                            "{}: not the image that {LIST} describes: it is replaced",
                            path.display()
                        );
                    }
                    self.force
                }
                Present::Missing => self.force,
            };
            let raw = Some(OutputFormat::Raw);
            let target = Target::create(&path, is_replaced, raw, self.inputs)?;
            let target = target.with_reflink(self.reflink)?.with_stop(self.stop.clone());
            one.target = Some(target);
        }
        Ok(planned)
    }

    /// Computes the digests of the images that were written.
    fn digest(planned: &mut [Planned]) -> Result<(), Error> {
        planned.par_iter_mut().try_for_each(|one| {
            let Some(target) = &one.target else { return Ok(()) };
            let device = target.written().expect("the image was written to it");
            let sha256 = reuse::sha256(device.as_ref())
                .map_err(|error| Error::from(error).about(target.path().display()))?;
            one.sha256 = Some(sha256);
            Ok(())
        })
    }

    /// Gives the images their names. Returns the entries of the list.
    fn finish(&self, mut planned: Vec<Planned>) -> Result<Vec<LayerWritten>, Error> {
        let is_reused: Vec<bool> = planned.iter().map(|one| one.target.is_none()).collect();
        let targets = planned.iter_mut().filter_map(|one| one.target.take());
        targets.collect::<Vec<_>>().into_iter().try_for_each(Target::finish)?;
        let entries = planned.into_iter().zip(is_reused).enumerate();
        entries.map(|(nth, (one, is_reused))| self.entry(nth, one, is_reused)).collect()
    }

    /// The entry of the list for a layer whose image is finished.
    fn entry(&self, nth: usize, one: Planned, is_reused: bool) -> Result<LayerWritten, Error> {
        let layer = &self.image.layers[nth];
        let path = self.directory.join(&one.file);
        let options = OpenOptions { ignore_checksums: false, skip_journal: false };
        let image = seekless_images::open(&path, &Place::default(), options)?;
        let meta = fs::metadata(&path).map_err(|error| Error::io(path.display(), &error))?;
        Ok(LayerWritten {
            diff_id: format!("sha256:{}", layer.diff_id),
            digest: format!("sha256:{}", layer.digest),
            chain_id: one.chain_id,
            file: one.file,
            len: ByteLen::new(meta.len()),
            format: image.geometry().format.to_string(),
            files: u64::try_from(layer.source.tree().nodes().len()).unwrap_or(u64::MAX),
            inputs: one.inputs,
            sha256: one.sha256,
            is_reused,
        })
    }

    /// The list as JSON: the layers, the lowest first, and the form of their whiteouts.
    #[must_use]
    pub fn list(&self, written: &[LayerWritten]) -> Value {
        let layer = |(order, one): (usize, &LayerWritten)| {
            let mut entry = json!({
                "order": order,
                "diff_id": one.diff_id,
                "digest": one.digest,
                "chain_id": one.chain_id,
                "file": one.file,
                "bytes": one.len.get(),
                "format": one.format,
                "files": one.files,
                "inputs": one.inputs,
            });
            if let Some(sha256) = &one.sha256 {
                entry["sha256"] = json!(sha256);
            }
            entry
        };
        let whiteouts = match self.whiteouts {
            Whiteouts::Overlay => "overlay",
            Whiteouts::OverlayUser => "overlay-user",
            Whiteouts::Keep => "keep",
        };
        let layers: Vec<Value> = written.iter().enumerate().map(layer).collect();
        json!({ "layers": layers, "whiteouts": whiteouts })
    }

    /// The name of a layer's image: its place, and the beginning of its digest. Names are in the
    /// order of layers.
    fn file(&self, nth: usize) -> String {
        let layers = &self.image.layers;
        let width = layers.len().saturating_sub(1).to_string().len().max(2);
        let digits = layers[nth].diff_id.get(..SHOWN_DIGITS).unwrap_or_default();
        format!("{nth:0width$}-{digits}.img")
    }

    /// The options of a layer's volume.
    fn options_of(&self, chain_id: &str) -> Result<Options, Error> {
        let mut options = (self.options)()?;
        if let (Options::Ext(options), Some(uuid)) = (&mut options, self.uuid) {
            options.uuid = Some(derived(uuid, chain_id));
        }
        Ok(options)
    }
}

/// Refuses volumes that cannot store whiteouts.
///
/// # Errors
/// [`ErrorKind::Usage`](seekless_images::ErrorKind).
pub fn check(options: &Options, whiteouts: Whiteouts) -> Result<(), Error> {
    match options {
        Options::Ufs(options) if options.drop_xattrs && whiteouts != Whiteouts::Keep => {
            let why = " would leave out marks of layers, too";
            Err(Error::usage(Text::from(Term::DropXattrs).then(why)))
        }
        Options::Ext(_) | Options::Ufs(_) => Ok(()),
        Options::Fat(_) => {
            let what = "FAT has no device nodes and no attributes, which images of layers need";
            Err(Error::usage(what))
        }
    }
}

/// Creates a directory, if nothing is there. Returns whether it did.
fn create(directory: &Path) -> Result<bool, Error> {
    let shown = directory.display();
    match fs::metadata(directory) {
        Ok(meta) if meta.is_dir() => Ok(false),
        Ok(_) => Err(Error::usage(format!("{shown}: not a directory"))),
        Err(_) => {
            fs::create_dir(directory).map_err(|error| Error::io(shown, &error))?;
            Ok(true)
        }
    }
}

/// For each layer, the digest of it and those below it (image specification of OCI, "Layer
/// ChainID").
fn chain_ids<'a>(diff_ids: impl Iterator<Item = &'a String>) -> impl Iterator<Item = String> {
    diff_ids.scan(None::<String>, |below, diff_id| {
        let diff_id = format!("sha256:{diff_id}");
        let chain_id = match below {
            Some(below) => shown(Sha256::new_with_prefix(format!("{below} {diff_id}"))),
            None => diff_id,
        };
        *below = Some(chain_id.clone());
        Some(chain_id)
    })
}

/// An identifier of a layer's volume (RFC 9562, version 8).
fn derived(uuid: [u8; 16], chain_id: &str) -> [u8; 16] {
    let hash = Sha256::new().chain_update("seekless layer ").chain_update(uuid);
    let hash = hash.chain_update(chain_id).finalize();
    let mut own = [0; 16];
    own.copy_from_slice(&hash[..16]);
    own[6] = own[6] & 0x0F | 0x80;
    own[8] = own[8] & 0x3F | 0x80;
    own
}
