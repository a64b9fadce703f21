//! Images that are made.

use crate::errors::{raise, usage};
use crate::paths::{AnyPath, Paths, Texts};
use crate::records::{repr, to_dict};
use crate::trace::Traces;
use crate::work::{self, Interrupted, Watched};
use pyo3::prelude::*;
use seekless::{Build, Error, Format, LaidOutFor, Reflink, Stop, Whiteouts};
use serde::Serialize;

const FORMATS: [(&str, Format); 7] = [
    ("ext2", Format::Ext2),
    ("ext3", Format::Ext3),
    ("ext4", Format::Ext4),
    ("ufs1", Format::Ufs1),
    ("ufs2", Format::Ufs2),
    ("fat", Format::Fat),
    ("fat32", Format::Fat32),
];

const STORAGE: [(&str, LaidOutFor); 3] =
    [("disk", LaidOutFor::Disk), ("lazy", LaidOutFor::Lazy), ("ssd", LaidOutFor::Ssd)];

const REFLINK: [(&str, Reflink); 3] =
    [("auto", Reflink::Auto), ("always", Reflink::Always), ("never", Reflink::Never)];

const WHITEOUTS: [(&str, Whiteouts); 3] = [
    ("overlay", Whiteouts::Overlay),
    ("overlay-user", Whiteouts::OverlayUser),
    ("keep", Whiteouts::Keep),
];

/// The value of a parameter that has a word for each.
pub(crate) fn choice<T: Copy>(
    parameter: &str,
    word: &str,
    values: &[(&str, T)],
) -> Result<T, Error> {
    let found = values.iter().find(|(known, _)| *known == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
        Error::usage(format!("{parameter}={word:?}: one of {} is expected", words.join(", ")))
    })
}

pub(crate) fn storage(word: &str) -> Result<LaidOutFor, Error> {
    choice("storage", word, &STORAGE)
}

pub(crate) fn reflink(word: &str) -> Result<Reflink, Error> {
    choice("reflink", word, &REFLINK)
}

/// Makes an image of one or several sources: directories, tar archives, container images and images.
/// Of several, each is laid over those before it. The same source gives the same bytes.
///
/// The file appears when it is complete. `progress(done, total)` is called with bytes; an exception
/// in it, and KeyboardInterrupt, stop the work. The last call follows the completion. The parameters
/// are the options of `seekless build`.
#[pyfunction]
#[pyo3(signature = (
    source, output, *, format="ext4", size=None, free=0, label="", uuid=None, block_size=None,
    features="", source_date_epoch=None, exclude=Texts::default(), exclude_from=Paths::default(),
    owner=None, tag=None, cache_dir=None, auth_file=Paths::default(), drop=None, trace=Traces::default(), chunk=524_288, storage="disk",
    like=Paths::default(), share=false, freed=None, move_budget=0, reflink="auto", force=false,
    whiteouts=None, progress=None,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn build(
    py: Python<'_>,
    source: Paths,
    output: AnyPath,
    format: &str,
    size: Option<u64>,
    free: u64,
    label: &str,
    uuid: Option<Bound<'_, PyAny>>,
    block_size: Option<u32>,
    features: &str,
    source_date_epoch: Option<i64>,
    exclude: Texts,
    exclude_from: Paths,
    owner: Option<(u32, u32)>,
    tag: Option<String>,
    cache_dir: Option<AnyPath>,
    auth_file: Paths,
    drop: Option<&str>,
    trace: Traces,
    chunk: u64,
    storage: &str,
    like: Paths,
    share: bool,
    freed: Option<&str>,
    move_budget: u64,
    reflink: &str,
    force: bool,
    whiteouts: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Built> {
    let options = Options {
        format,
        label,
        uuid,
        block_size,
        features,
        source_date_epoch,
        exclude,
        exclude_from,
        owner,
        tag,
        cache_dir,
        auth_file,
        chunk,
        storage,
        reflink,
        force,
    };
    let wrong = |error: Error| raise(py, &error);
    let (stop, watched) = (Stop::new(), Watched::by(progress));
    let mut build = options.apply(py, Build::of(source.into_vec()))?;
    build = build.free(free).move_budget(move_budget);
    build = build.progress(watched.observer()).stop(stop.clone());
    if let Some(size) = size {
        build = build.size(size);
    }
    match drop {
        None => {}
        Some("all") => build = build.lossy(),
        Some(other) => return Err(usage(py, format!("drop={other:?}: \"all\" is expected"))),
    }
    build = like.into_vec().into_iter().fold(build, Build::like);
    if share {
        build = build.shared();
    }
    if let Some(freed) = freed {
        let keeps = choice("freed", freed, &[("keep", true), ("zero", false)]);
        build = build.keep_freed(keeps.map_err(wrong)?);
    }
    if let Some(form) = whiteouts {
        build = build.whiteouts(choice("whiteouts", form, &WHITEOUTS).map_err(wrong)?);
    }
    let built = work::run_watched(py, Interrupted::Stops(stop), &watched, move || {
        trace.load()?.into_iter().fold(build, Build::trace).write(output)
    })?;
    Ok(Built { size: built.len, used: built.used, files: built.files, uuid: built.uuid })
}

/// Makes an image for each layer of a container image, for overlayfs to lay over one another, and
/// `layers.json`, the list of them, in the directory `output`. The lowest layer is the first.
///
/// The files appear when all are complete. `progress(done, total)` is called with bytes of one image
/// after another. The parameters are the options of `seekless build --layers`.
#[pyfunction]
#[pyo3(signature = (
    source, output, *, whiteouts="overlay", format="ext4", label="", uuid=None, block_size=None,
    features="", source_date_epoch=None, exclude=Texts::default(), exclude_from=Paths::default(),
    owner=None, tag=None, cache_dir=None, auth_file=Paths::default(), trace=Traces::default(),
    chunk=524_288, storage="disk", reflink="auto", force=false, progress=None,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn build_layers(
    py: Python<'_>,
    source: AnyPath,
    output: AnyPath,
    whiteouts: &str,
    format: &str,
    label: &str,
    uuid: Option<Bound<'_, PyAny>>,
    block_size: Option<u32>,
    features: &str,
    source_date_epoch: Option<i64>,
    exclude: Texts,
    exclude_from: Paths,
    owner: Option<(u32, u32)>,
    tag: Option<String>,
    cache_dir: Option<AnyPath>,
    auth_file: Paths,
    trace: Traces,
    chunk: u64,
    storage: &str,
    reflink: &str,
    force: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<BuiltLayer>> {
    let options = Options {
        format,
        label,
        uuid,
        block_size,
        features,
        source_date_epoch,
        exclude,
        exclude_from,
        owner,
        tag,
        cache_dir,
        auth_file,
        chunk,
        storage,
        reflink,
        force,
    };
    let form = choice("whiteouts", whiteouts, &WHITEOUTS).map_err(|error| raise(py, &error))?;
    let (stop, watched) = (Stop::new(), Watched::by(progress));
    let build = options.apply(py, Build::of([source]))?;
    let build = build.progress(watched.observer()).stop(stop.clone());
    let layers = work::run_watched(py, Interrupted::Stops(stop), &watched, move || {
        trace.load()?.into_iter().fold(build, Build::trace).write_layers(output, form)
    })?;
    Ok(layers.into_iter().map(BuiltLayer::from).collect())
}

/// Options of one image and of the images of layers.
struct Options<'a, 'py> {
    format: &'a str,
    label: &'a str,
    uuid: Option<Bound<'py, PyAny>>,
    block_size: Option<u32>,
    features: &'a str,
    source_date_epoch: Option<i64>,
    exclude: Texts,
    exclude_from: Paths,
    owner: Option<(u32, u32)>,
    tag: Option<String>,
    cache_dir: Option<AnyPath>,
    auth_file: Paths,
    chunk: u64,
    storage: &'a str,
    reflink: &'a str,
    force: bool,
}

impl Options<'_, '_> {
    fn apply(self, py: Python<'_>, build: Build) -> PyResult<Build> {
        let wrong = |error: Error| raise(py, &error);
        let mut build = build
            .format(choice("format", self.format, &FORMATS).map_err(wrong)?)
            .label(self.label)
            .features(self.features)
            .chunk(self.chunk)
            .laid_out_for(storage(self.storage).map_err(wrong)?)
            .reflink(reflink(self.reflink).map_err(wrong)?);
        if let Some(uuid) = self.uuid {
            build = build.uuid(uuid_bytes(&uuid)?);
        }
        if let Some(block_size) = self.block_size {
            build = build.block_size(block_size);
        }
        if let Some(seconds) = self.source_date_epoch {
            build = build.made_at(seconds);
        }
        build = self.exclude_from.into_vec().into_iter().fold(build, Build::exclude_from);
        build = self.exclude.into_vec().into_iter().fold(build, Build::exclude);
        if let Some((uid, gid)) = self.owner {
            build = build.owner(uid, gid);
        }
        if let Some(tag) = self.tag {
            build = build.tag(tag);
        }
        if let Some(dir) = self.cache_dir {
            build = build.cache_dir(dir);
        }
        build = self.auth_file.into_vec().into_iter().fold(build, Build::auth_file);
        Ok(if self.force { build.replace() } else { build })
    }
}

/// The bytes of a `uuid.UUID`, or of a text that it parses.
fn uuid_bytes(uuid: &Bound<'_, PyAny>) -> PyResult<[u8; 16]> {
    if let Ok(bytes) = uuid.getattr("bytes") {
        return bytes.extract();
    }
    let class = uuid.py().import("uuid")?.getattr("UUID")?;
    class.call1((uuid,))?.getattr("bytes")?.extract()
}

/// An image that was made.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Built {
    /// Bytes of the image.
    size: u64,
    /// Bytes of its blocks that are in use.
    used: u64,
    /// Files of all kinds in it, the root included, each once; an empty `lost+found` is none.
    files: u64,
    /// Its UUID; zeros where the format has none.
    uuid: String,
}

#[pymethods]
impl Built {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("Built", self)
    }
}

/// The image of a layer.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct BuiltLayer {
    /// The SHA-256 of the layer's archive, not compressed.
    diff_id: String,
    /// That of the layer's archive as the container image has it.
    digest: String,
    /// The digest of this layer and those below it.
    chain_id: String,
    /// The name of the image in the directory.
    file: String,
    /// Bytes of the image.
    size: u64,
    /// Files of all kinds in it, whiteouts included.
    files: u64,
}

impl From<seekless::BuiltLayer> for BuiltLayer {
    fn from(layer: seekless::BuiltLayer) -> Self {
        let seekless::BuiltLayer { diff_id, digest, chain_id, file, len, files, .. } = layer;
        Self { diff_id, digest, chain_id, file, size: len, files }
    }
}

#[pymethods]
impl BuiltLayer {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("BuiltLayer", self)
    }
}
