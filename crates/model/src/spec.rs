//! What a parameter file says: one device, of one kind.

use crate::device::DeviceModel;
use crate::null::Null;
use crate::volume::{Volume, VolumeSpec};
use serde::{Deserialize, Serialize};

/// A parameter file, see docs/models.md.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The preset's or device's name.
    pub name: String,
    /// What it is, in a line.
    pub summary: String,
    /// Where the figures come from: datasheets, papers, parameter files.
    #[serde(default)]
    pub sources: Vec<String>,
    /// A device that takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<NullSpec>,
    /// A network-attached volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSpec>,
}

/// [`Null`] has no figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullSpec {}

impl Spec {
    /// What kind of device this is, as the parameter file spells it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.volume.is_some() { "volume" } else { "null" }
    }

    /// What is wrong with the figures: the key, and why.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        let kinds = [self.null.is_some(), self.volume.is_some()];
        if kinds.iter().filter(|&&present| present).count() != 1 {
            let why = "a device has exactly one of the tables null, volume";
            return Some(("name", why.into()));
        }
        self.volume.as_ref().and_then(VolumeSpec::fault)
    }

    /// The device at rest: nothing cached, bursts full.
    #[must_use]
    pub fn build(&self) -> Box<dyn DeviceModel> {
        match &self.volume {
            Some(volume) => Box::new(Volume::new(volume.clone())),
            None => Box::new(Null::default()),
        }
    }
}
