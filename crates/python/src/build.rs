//! Images that are made.

use crate::errors::{raise, usage};
use crate::paths::{AnyPath, Paths, Texts};
use crate::records::{repr, to_dict};
use crate::trace::Traces;
use crate::work::{self, Interrupted, Watched};
use pyo3::prelude::*;
use seekless::{
    Architecture, Build, Error, Format, LaidOutFor, OutputFormat, Reflink, Stop, Whiteouts,
};
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

const OUTPUT_FORMATS: [(&str, OutputFormat); 6] = [
    ("raw", OutputFormat::Raw),
    ("qcow2", OutputFormat::Qcow2),
    ("simg", OutputFormat::Simg),
    ("vhd", OutputFormat::Vhd),
    ("vhdx", OutputFormat::Vhdx),
    ("vmdk", OutputFormat::Vmdk),
];

const ARCHITECTURES: [(&str, Architecture); 5] = [
    ("x86", Architecture::X86),
    ("x86-64", Architecture::X86_64),
    ("arm", Architecture::Arm),
    ("arm64", Architecture::Arm64),
    ("riscv64", Architecture::Riscv64),
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

/// Functions of Python that make images: behind its own parameters, each has those of [`Options`], by
/// keyword.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        options $shared:tt
        $($(#[$function_meta:meta])* fn $name:ident $parameters:tt -> $returned:ty $body:block)*
    ) => {
        functions! { @options $(#[$meta])* $shared }
        $(functions! {
            @function $shared $(#[$function_meta])* $name $parameters $returned, $body
        })*
    };
    (@options $(#[$meta:meta])* { $($field:ident: $type:ty = $default:tt,)* }) => {
        $(#[$meta])*
        struct Options<'a> {
            $($field: $type,)*
        }
    };
    (
        @function
        { $($field:ident: $type:ty = $default:tt,)* }
        $(#[$meta:meta])*
        $name:ident
        (
            $py:ident, $options:ident, $($path:ident: $path_type:ty,)*
            *, $($own:ident: $own_type:ty = $own_default:tt,)*
        )
        $returned:ty, $body:block
    ) => {
        $(#[$meta])*
        #[pyfunction]
        #[pyo3(signature = ($($path,)* *, $($field = $default,)* $($own = $own_default,)*))]
        #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
        pub(crate) fn $name<'a, 'py>(
            $py: Python<'py>,
            $($path: $path_type,)*
            $($field: $type,)*
            $($own: $own_type,)*
        ) -> PyResult<$returned> {
            let $options: Options<'a> = Options { $($field,)* };
            $body
        }
    };
}

functions! {
    /// Options of one image, of the images of layers and of disks.
    options {
        block_size: Option<u32> = None,
        features: &'a str = "",
        source_date_epoch: Option<i64> = None,
        exclude: Texts = (Texts::default()),
        exclude_from: Paths = (Paths::default()),
        owner: Option<(u32, u32)> = None,
        tag: Option<String> = None,
        cache_dir: Option<AnyPath> = None,
        auth_file: Paths = (Paths::default()),
        trace: Traces = (Traces::default()),
        chunk: u64 = 524_288,
        storage: &'a str = "disk",
        reflink: &'a str = "auto",
        force: bool = false,
        progress: Option<Py<PyAny>> = None,
    }

    /// Makes an image of one or several sources: directories, tar archives, container images and images.
    /// Of several, each is laid over those before it. The same source gives the same bytes.
    ///
    /// The file appears when it is complete. `progress(done, total)` is called with bytes; an exception
    /// in it, and KeyboardInterrupt, stop the work. The last call follows the completion. The parameters
    /// are the options of `seekless build`.
    fn build(
        py, options, source: Paths, output: AnyPath,
        *,
        format: &str = "ext4",
        label: &str = "",
        uuid: Option<Bound<'py, PyAny>> = None,
        size: Option<u64> = None,
        free: u64 = 0,
        drop: Option<&str> = None,
        like: Paths = (Paths::default()),
        share: bool = false,
        freed: Option<&str> = None,
        move_budget: u64 = 0,
        whiteouts: Option<&str> = None,
        output_format: Option<&str> = None,
    ) -> Built {
        let wrong = |error: Error| raise(py, &error);
        let build = of_volume(py, Build::of(source.into_vec()), format, label, uuid)?;
        let mut work = options.apply(py, in_format(py, build, output_format)?)?;
        let mut build = work.build.free(free).move_budget(move_budget);
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
        work.build = build;
        let built = work.run(py, move |build| build.write(output))?;
        Ok(Built { size: built.len, used: built.used, files: built.files, uuid: built.uuid })
    }

    /// Makes an image for each layer of a container image, for overlayfs to lay over one another, and
    /// `layers.json`, the list of them, in the directory `output`. The lowest layer is the first.
    ///
    /// The files appear when all are complete. `progress(done, total)` is called with bytes of one image
    /// after another. The parameters are the options of `seekless build --layers`. With `reuse`,
    /// images of an earlier run that would be the same are kept, and others of that run replaced.
    fn build_layers(
        py, options, source: AnyPath, output: AnyPath,
        *,
        format: &str = "ext4",
        label: &str = "",
        uuid: Option<Bound<'py, PyAny>> = None,
        whiteouts: &str = "overlay",
        reuse: bool = false,
    ) -> Vec<BuiltLayer> {
        let form = choice("whiteouts", whiteouts, &WHITEOUTS).map_err(|error| raise(py, &error))?;
        let build = of_volume(py, Build::of([source]), format, label, uuid)?;
        let work = options.apply(py, if reuse { build.reuse() } else { build })?;
        let layers = work.run(py, move |build| build.write_layers(output, form))?;
        Ok(layers.into_iter().map(BuiltLayer::from).collect())
    }

    /// Makes a disk with a GUID partition table and the partitions that the files `*.conf` of the
    /// directory `definitions` define, as those of systemd-repart. `CopyFiles=` copies from the
    /// source, or from several, which are laid over each other; `size` is that of the disk.
    ///
    /// The file appears when it is complete. `progress(done, total)` is called with bytes of one
    /// partition after another. The parameters are the options of `seekless build --definitions`.
    fn build_disk(
        py, options, source: Paths, output: AnyPath, definitions: AnyPath,
        *,
        architecture: &str = "x86-64",
        size: Option<u64> = None,
        output_format: Option<&str> = None,
    ) -> BuiltDisk {
        let architecture = choice("architecture", architecture, &ARCHITECTURES);
        let build = Build::of(source.into_vec());
        let build = build.architecture(architecture.map_err(|error| raise(py, &error))?);
        let mut work = options.apply(py, in_format(py, build, output_format)?)?;
        if let Some(size) = size {
            work.build = work.build.size(size);
        }
        let disk = work.run(py, move |build| build.write_disk(output, definitions))?;
        let partitions = disk.partitions.into_iter().map(BuiltPartition::from).collect();
        Ok(BuiltDisk { size: disk.len, partitions })
    }
}

/// Sets the options of a single volume.
fn of_volume(
    py: Python<'_>,
    build: Build,
    format: &str,
    label: &str,
    uuid: Option<Bound<'_, PyAny>>,
) -> PyResult<Build> {
    let format = choice("format", format, &FORMATS).map_err(|error| raise(py, &error))?;
    let build = build.format(format).label(label);
    Ok(match uuid {
        Some(uuid) => build.uuid(uuid_bytes(&uuid)?),
        None => build,
    })
}

/// Sets the format of the file.
fn in_format(py: Python<'_>, build: Build, format: Option<&str>) -> PyResult<Build> {
    let Some(word) = format else { return Ok(build) };
    let format = choice("output_format", word, &OUTPUT_FORMATS);
    Ok(build.output_format(format.map_err(|error| raise(py, &error))?))
}

/// A build with its options, before it runs.
struct Work {
    build: Build,
    trace: Traces,
    watched: Watched,
    stop: Stop,
}

impl Work {
    /// Runs the build without the lock of the interpreter. Traces are loaded first.
    fn run<T: Send + 'static>(
        self,
        py: Python<'_>,
        write: impl FnOnce(Build) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let Self { build, trace, watched, stop } = self;
        work::run_watched(py, Interrupted::Stops(stop), &watched, move || {
            write(trace.load()?.into_iter().fold(build, Build::trace))
        })
    }
}

impl Options<'_> {
    fn apply(self, py: Python<'_>, build: Build) -> PyResult<Work> {
        let wrong = |error: Error| raise(py, &error);
        let mut build = build
            .features(self.features)
            .chunk(self.chunk)
            .laid_out_for(storage(self.storage).map_err(wrong)?)
            .reflink(reflink(self.reflink).map_err(wrong)?);
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
        if self.force {
            build = build.replace();
        }
        let (stop, watched) = (Stop::new(), Watched::by(self.progress));
        let build = build.progress(watched.observer()).stop(stop.clone());
        Ok(Work { build, trace: self.trace, watched, stop })
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

/// A disk that was made.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct BuiltDisk {
    /// Bytes of the disk.
    size: u64,
    /// Its partitions, in order; the first has the number 1.
    partitions: Vec<BuiltPartition>,
}

#[pymethods]
impl BuiltDisk {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("BuiltDisk", self)
    }
}

/// A partition of such a disk.
#[pyclass(frozen, get_all, eq, module = "seekless")]
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BuiltPartition {
    /// The byte of the disk that it begins with.
    start: u64,
    /// Its bytes.
    size: u64,
    /// The identifier of its type in the Discoverable Partitions Specification, or its GUID.
    kind: String,
    /// Its label.
    name: String,
    /// Its UUID.
    uuid: String,
    /// `ext4`, `ext3`, `ext2`, `vfat` or `swap`; none without a file system.
    format: Option<String>,
    /// Files of all kinds in it.
    files: u64,
    /// The hash of the root of its hash tree, in hexadecimal digits, if it has one.
    root_hash: Option<String>,
}

impl From<seekless::BuiltPartition> for BuiltPartition {
    fn from(one: seekless::BuiltPartition) -> Self {
        Self {
            start: one.start,
            size: one.len,
            kind: one.kind,
            name: one.name,
            uuid: one.uuid,
            format: one.format,
            files: one.files,
            root_hash: one.root_hash,
        }
    }
}

#[pymethods]
impl BuiltPartition {
    /// The same as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(py, self)
    }

    fn __repr__(&self) -> String {
        repr("BuiltPartition", self)
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
    /// The SHA-256 of the image, with `reuse`.
    sha256: Option<String>,
    /// Whether the image is that of an earlier run.
    reused: bool,
}

impl From<seekless::BuiltLayer> for BuiltLayer {
    fn from(layer: seekless::BuiltLayer) -> Self {
        Self {
            diff_id: layer.diff_id,
            digest: layer.digest,
            chain_id: layer.chain_id,
            file: layer.file,
            size: layer.len,
            files: layer.files,
            sha256: layer.sha256,
            reused: layer.is_reused,
        }
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
