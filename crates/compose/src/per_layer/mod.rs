//! An image for each layer of a container image, to be laid over one another by overlayfs when they
//! are mounted.

mod traces;

pub use seekless_source::oci::{Apart, Whiteouts};

use crate::build::Build;
use crate::formats::Options;
use crate::write::Destination;
use seekless_fs::format::OpenOptions;
use seekless_fs::term::{Term, Text};
use seekless_images::output::{self, in_the_way};
use seekless_images::targets::{OutputFormat, Target};
use seekless_images::{Error, Place, Progress, ReflinkMode, Stop};
use seekless_layout::planner::Storage;
use seekless_layout::trace::Events;
use seekless_units::ByteLen;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
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
}

impl LayersBuild<'_> {
    /// Writes all images, the lowest layer first, and the list [`LIST`]. They get their names when
    /// all of them are complete, the list last.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind) for a format without device nodes and
    /// attributes, and for a directory that is another file;
    /// [`ErrorKind::System`](seekless_images::ErrorKind) for files that exist, unless they are
    /// replaced; as [`Build::write`].
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
        let list = self.directory.join(LIST);
        if !self.force && list.symlink_metadata().is_ok() {
            return Err(in_the_way(
                &list,
                Text::from("use ").then(Term::Force).then(" to replace it"),
            ));
        }
        let layers = &self.image.layers;
        let targets: Vec<Target> =
            (0..layers.len()).map(|nth| self.target(nth)).collect::<Result<_, _>>()?;
        let trees = layers.iter().map(|layer| layer.source.tree()).collect();
        let traces = traces::split(self.traces, self.image.whole.tree(), trees);
        let chain_ids = chain_ids(layers.iter().map(|layer| &layer.diff_id));
        let mut lens = Vec::with_capacity(layers.len());
        for (nth, (layer, target)) in layers.iter().zip(&targets).enumerate() {
            let build = Build {
                source: layer.source.as_ref(),
                name: &format!("{}: layer {nth}", self.name),
                traces: &traces[nth],
                storage: self.storage,
                destination: Destination::whole(target),
                progress: self.progress,
            };
            lens.push(build.write(&self.options_of(&chain_ids[nth])?, None)?.len);
        }
        // An older list must not stand beside images that it does not describe.
        match fs::remove_file(&list) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(list.display(), &error));
            }
            _ => {}
        }
        targets.into_iter().try_for_each(Target::finish)?;
        let parts = chain_ids.into_iter().zip(lens).enumerate();
        let written: Vec<LayerWritten> = parts
            .map(|(nth, (chain_id, len))| self.written(nth, chain_id, len))
            .collect::<Result<_, _>>()?;
        let text = self.list(&written).to_string();
        output::replace(&list, |out| writeln!(out, "{text}"))?;
        Ok(written)
    }

    /// The entry of the list for a layer whose image is finished.
    fn written(&self, nth: usize, chain_id: String, len: ByteLen) -> Result<LayerWritten, Error> {
        let layer = &self.image.layers[nth];
        let file = self.file(nth);
        let options = OpenOptions { ignore_checksums: false, skip_journal: false };
        let image = seekless_images::open(&self.directory.join(&file), &Place::default(), options)?;
        Ok(LayerWritten {
            diff_id: format!("sha256:{}", layer.diff_id),
            digest: format!("sha256:{}", layer.digest),
            chain_id,
            file,
            len,
            format: image.geometry().format.to_string(),
            files: u64::try_from(layer.source.tree().nodes().len()).unwrap_or(u64::MAX),
        })
    }

    /// The list as JSON: the layers, the lowest first, and the form of their whiteouts.
    #[must_use]
    pub fn list(&self, written: &[LayerWritten]) -> Value {
        let layer = |(order, one): (usize, &LayerWritten)| {
            json!({
                "order": order,
                "diff_id": one.diff_id,
                "digest": one.digest,
                "chain_id": one.chain_id,
                "file": one.file,
                "bytes": one.len.get(),
                "format": one.format,
                "files": one.files,
            })
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

    fn target(&self, nth: usize) -> Result<Target, Error> {
        let path = self.directory.join(self.file(nth));
        let target = Target::create(&path, self.force, Some(OutputFormat::Raw))?;
        Ok(target.with_reflink(self.reflink)?.with_stop(self.stop.clone()))
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
fn chain_ids<'a>(diff_ids: impl Iterator<Item = &'a String>) -> Vec<String> {
    let chain = diff_ids.scan(None::<String>, |below, diff_id| {
        let own = match below {
            Some(below) => sha256(format!("{below} sha256:{diff_id}").as_bytes()),
            None => diff_id.clone(),
        };
        let chain_id = format!("sha256:{own}");
        *below = Some(chain_id.clone());
        Some(chain_id)
    });
    chain.collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
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
