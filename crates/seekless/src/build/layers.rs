//! An image for each layer of a container image.

use super::Build;
use crate::Error;
use seekless_compose::per_layer::{self, LayerWritten, LayersBuild};
use seekless_compose::sources;
use seekless_images::output;
use seekless_layout::planner::Storage;
use seekless_units::ByteLen;
use serde::Serialize;
use std::path::Path;

/// The form of whiteouts. A whiteout hides a file of the layers below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Whiteouts {
    /// As overlayfs: character devices 0:0, and `trusted.overlay.opaque`.
    #[default]
    Overlay,
    /// As overlayfs with the mount option `userxattr`: `user.overlay.opaque`.
    OverlayUser,
    /// As the archive: files `.wh.NAME`. Each archive is read alone.
    Keep,
}

impl From<Whiteouts> for per_layer::Whiteouts {
    fn from(form: Whiteouts) -> Self {
        match form {
            Whiteouts::Overlay => Self::Overlay,
            Whiteouts::OverlayUser => Self::OverlayUser,
            Whiteouts::Keep => Self::Keep,
        }
    }
}

/// The image of a layer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BuiltLayer {
    /// The SHA-256 of the layer's archive, not compressed: `sha256:` and hexadecimal digits.
    pub diff_id: String,
    /// That of the layer's archive as the container image has it.
    pub digest: String,
    /// The digest of this layer and those below it, as the image specification of OCI chains them.
    pub chain_id: String,
    /// The name of the image in the directory.
    pub file: String,
    /// Bytes of the image.
    pub len: u64,
    /// Files of all kinds in it, whiteouts included.
    pub files: u64,
    /// The SHA-256 of the image, `sha256:` and hexadecimal digits, with [`Build::reuse`].
    pub sha256: Option<String>,
    /// Whether the image is that of an earlier run ([`Build::reuse`]).
    pub is_reused: bool,
}

impl From<LayerWritten> for BuiltLayer {
    fn from(layer: LayerWritten) -> Self {
        Self {
            diff_id: layer.diff_id,
            digest: layer.digest,
            chain_id: layer.chain_id,
            file: layer.file,
            len: layer.len.get(),
            files: layer.files,
            sha256: layer.sha256,
            is_reused: layer.is_reused,
        }
    }
}

impl Build {
    /// Writes an image for each layer of the source, a container image, for overlayfs to lay over
    /// one another, and `layers.json`, the list of them, into a directory. It is created if only its
    /// parent exists. The lowest layer is the first. A trace is one of all layers together.
    ///
    /// ```
    /// use seekless::{Build, Whiteouts};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let (image, images) = (work.path().join("image.tar"), work.path().join("layers"));
    /// # std::fs::write(work.path().join("layer.tar"), [0; 1024])?;
    /// # let manifest = r#"[{"Config":"config.json","RepoTags":null,"Layers":["layer.tar"]}]"#;
    /// # std::fs::write(work.path().join("manifest.json"), manifest)?;
    /// # let empty = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
    /// # let config = format!(r#"{{"rootfs":{{"type":"layers","diff_ids":["sha256:{empty}"]}}}}"#);
    /// # std::fs::write(work.path().join("config.json"), config)?;
    /// # let mut tar = std::process::Command::new("tar");
    /// # tar.current_dir(&work).args(["-cf", "image.tar", "layer.tar", "manifest.json", "config.json"]);
    /// # assert!(tar.status()?.success());
    /// // An archive of `docker save`; the other forms of container images are possible too.
    /// for layer in Build::of([&image]).reuse().write_layers(&images, Whiteouts::Overlay)? {
    ///     let image = seekless::open(images.join(&layer.file))?;
    ///     assert_eq!(image.volume().format, "ext4");
    /// }
    /// // Again: the images are there, and are those that would be written.
    /// let again = Build::of([&image]).reuse().write_layers(&images, Whiteouts::Overlay)?;
    /// assert!(again.iter().all(|layer| layer.is_reused));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for another source than one container image, for
    /// options of a single image (a size, free bytes, older images, common places, an output
    /// format), for changes to the whole tree, and for FAT;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for files that overlayfs takes for marks;
    /// otherwise as [`write`](Self::write).
    pub fn write_layers(
        &self,
        directory: impl AsRef<Path>,
        whiteouts: Whiteouts,
    ) -> Result<Vec<BuiltLayer>, Error> {
        let directory = directory.as_ref();
        self.stop.during(directory.display(), || self.compose_layers(directory, whiteouts.into()))
    }

    fn compose_layers(
        &self,
        directory: &Path,
        whiteouts: per_layer::Whiteouts,
    ) -> Result<Vec<BuiltLayer>, Error> {
        let [source] = self.sources.as_slice() else {
            return Err(Error::usage("layers are those of one source, a container image"));
        };
        self.refuse_options_of_one_image()?;
        let of_layer = || self.settings(self.format, None, None);
        per_layer::check(&of_layer()?, whiteouts)?;
        for path in [directory, &directory.join(per_layer::LIST)] {
            output::refuse_inputs(path, &self.sources)?;
        }
        let opening = self.opening(directory)?;
        let image = sources::open_apart(source, &opening, whiteouts, self.purpose())?;
        let traces: Vec<_> = self.traces.iter().map(|trace| trace.events.clone()).collect();
        let build = LayersBuild {
            image: &image,
            whiteouts,
            name: &self.shown_sources(),
            traces: &traces,
            storage: Storage { kind: self.storage.into(), chunk: ByteLen::new(self.chunk) },
            options: &of_layer,
            uuid: self.uuid.filter(|uuid| *uuid != [0; 16]),
            directory,
            force: self.replaces,
            reuses: self.reuses,
            inputs: &self.inputs(),
            reflink: self.reflink.into(),
            progress: self.progress.as_ref(),
            stop: &self.stop,
        };
        Ok(build.write()?.into_iter().map(BuiltLayer::from).collect())
    }

    fn refuse_options_of_one_image(&self) -> Result<(), Error> {
        let refused = [
            (self.size.is_some(), "a size"),
            (self.free > 0, "free bytes"),
            (!self.like.is_empty(), "an older image"),
            (self.is_shared, "common places"),
            (self.freed.is_some(), "freed blocks"),
            (self.is_lossy, "a lossy format"),
            (self.options.whiteouts.is_some(), "whiteouts of an archive"),
            (self.output_format.is_some(), "an output format"),
        ];
        match refused.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Error::usage(format!("{option}: not for images of layers"))),
            None => Ok(()),
        }
    }
}
