//! Connections of devices: NVLink and PCI Express.

use super::device::Uuid;
use super::fields::{Fields, Raw, flags, oldest, record};
use super::{DataKey, RecordBytes};
use crate::sys::field::{Field, Owned};
use crate::sys::generated::{nvlink, nvlink5, pcie};

/// An NVLink between two devices (`NVLINK`). Its record has one layout up to CUPTI 13.1 and another
/// from 13.2 on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NvLink<'a> {
    /// Version of NVLink (`nvlinkVersion`).
    pub version: u32,
    /// The two devices (`typeDev0`, `idDev0`, `typeDev1`, `idDev1`).
    pub ends: [LinkEnd; 2],
    /// The capabilities (`flag`).
    pub flags: LinkFlags,
    /// The number of physical links (`physicalNvLinkCount`).
    pub links: u32,
    /// Its bandwidth in kB/s (`bandwidth`).
    pub bandwidth_kb_per_s: u64,
    /// True if an NVSwitch connects the devices (`nvswitchConnected`).
    pub through_switch: bool,
    ports: [Ports<'a>; 2],
}

/// A device at the end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkEnd {
    /// A GPU (`CUPTI_DEV_TYPE_GPU`).
    Gpu(Uuid),
    /// An NPU (`CUPTI_DEV_TYPE_NPU`).
    Npu {
        /// Its index (`index`).
        index: u32,
        /// Its domain on NVIDIA's bus (`domainId`).
        domain: u32,
    },
    /// A type unknown to this version of the crate.
    Unknown(u32),
}

impl LinkEnd {
    fn new(kind: u32, uuid: [u8; 16], index: u32, domain: u32) -> Self {
        match kind {
            1 => Self::Gpu(Uuid(uuid)),
            2 => Self::Npu { index, domain },
            other => Self::Unknown(other),
        }
    }
}

flags! {
    /// The capabilities of a link as flags (`CUpti_LinkFlag`).
    LinkFlags {
        /// Access to the peer's memory.
        peer_access = 2,
        /// Access to the host's memory.
        system_access = 4,
        /// Atomics in the peer's memory.
        peer_atomics = 8,
        /// Atomics in the host's memory.
        system_atomics = 16,
    }
}

/// The location of the port numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ports<'a> {
    /// In the record, a byte each.
    Here(&'a [u8]),
    /// Copied from the record's pointer, 4 bytes each.
    There(Option<DataKey>),
}

/// The common fields of both layouts, at different offsets.
macro_rules! both_layouts {
    ($raw:ident, $family:ident) => {{
        use $family::*;
        let f = Fields::<Layout, { oldest(STRIDES) }>::from_raw($raw)?;
        let end = |kind, uuid, index, domain| {
            LinkEnd::new(f.get(kind), f.get(uuid), f.get(index), f.get(domain))
        };
        NvLink {
            version: f.get(NVLINK_VERSION),
            ends: [
                end(TYPE_DEV0, ID_DEV0_UUID_DEV, ID_DEV0_NPU_INDEX, ID_DEV0_NPU_DOMAIN_ID),
                end(TYPE_DEV1, ID_DEV1_UUID_DEV, ID_DEV1_NPU_INDEX, ID_DEV1_NPU_DOMAIN_ID),
            ],
            flags: LinkFlags(f.get(FLAG)),
            links: f.get(PHYSICAL_NV_LINK_COUNT),
            bandwidth_kb_per_s: f.get(BANDWIDTH),
            through_switch: f.flag(NVSWITCH_CONNECTED),
            ports: [Ports::There(None); 2],
        }
    }};
}

impl<'a> NvLink<'a> {
    pub(super) fn decode(raw: Raw<'a>) -> Option<Self> {
        if raw.release >= nvlink5::STRIDES[0].0 { Self::decode_5(raw) } else { Self::decode_4(raw) }
    }

    fn decode_4(raw: Raw<'a>) -> Option<Self> {
        let ports = |at: usize| raw.bytes.get(at..at + nvlink::PORT_DEV0.size()).map(Ports::Here);
        Some(Self {
            ports: [ports(nvlink::PORT_DEV0.offset())?, ports(nvlink::PORT_DEV1.offset())?],
            ..both_layouts!(raw, nvlink)
        })
    }

    fn decode_5(raw: Raw<'a>) -> Option<Self> {
        let f = Fields::<nvlink5::Layout, { oldest(nvlink5::STRIDES) }>::from_raw(raw)?;
        let ports = |field: Field<_, Owned>| Ports::There(DataKey::new(f.get(field).0));
        Some(Self {
            ports: [ports(nvlink5::PORT_DEV0), ports(nvlink5::PORT_DEV1)],
            ..both_layouts!(raw, nvlink5)
        })
    }

    /// The ports of the first (0) or second (1) end, one per physical link; `None` if unknown to
    /// CUPTI (`portDev0`, `portDev1`). Empty if the end is not a GPU.
    pub fn ports<'r>(
        &self,
        end: usize,
        records: &'r RecordBytes,
    ) -> impl Iterator<Item = Option<u32>> + use<'a, 'r> {
        let is_gpu = matches!(self.ends.get(end), Some(LinkEnd::Gpu(_)));
        let ports = self.ports.get(end).filter(|_| is_gpu);
        let (bytes, words): (&[u8], &[[u8; 4]]) = match ports {
            Some(Ports::Here(bytes)) => (bytes, &[]),
            Some(Ports::There(Some(key))) => {
                (&[], records.data(*key).unwrap_or_default().as_chunks().0)
            }
            _ => (&[], &[]),
        };
        let bytes = bytes.iter().map(|&port| (port != u8::MAX).then_some(port.into()));
        let words = words
            .iter()
            .map(|&port| Some(u32::from_ne_bytes(port)).filter(|&port| port != u32::MAX));
        bytes.chain(words).take(self.links as usize)
    }
}

record! {
    /// A device or bridge on PCI Express (`PCIE`).
    Pcie<'a>, raw, f of pcie {
        /// The device (`type`, `id`, `attr`).
        node: PcieNode = match f.get(TYPE) {
            0 => PcieNode::Gpu {
                device: f.get(ID_DEV_ID),
                uuid: Uuid(f.get(ATTR_GPU_ATTR_UUID_DEV)),
            },
            1 => PcieNode::Bridge {
                id: f.get(ID_BRIDGE_ID),
                secondary_bus: f.get(ATTR_BRIDGE_ATTR_SECONDARY_BUS),
                device_id: f.get(ATTR_BRIDGE_ATTR_DEVICE_ID),
                vendor_id: f.get(ATTR_BRIDGE_ATTR_VENDOR_ID),
            },
            other => PcieNode::Unknown(other),
        },
        /// Its PCI domain (`domain`).
        domain: u32 = f.get(DOMAIN),
        /// Generation of PCI Express (`pcieGeneration`).
        generation: u16 = f.get(PCIE_GENERATION),
        /// Gigatransfers a second (`linkRate`).
        link_gt_per_s: u16 = f.get(LINK_RATE),
        /// Lanes (`linkWidth`).
        lanes: u16 = f.get(LINK_WIDTH),
        /// The bus above it (`upstreamBus`).
        upstream_bus: u16 = f.get(UPSTREAM_BUS),
        ; raw: Raw<'a> = raw
    }
}

/// A device on PCI Express (`CUpti_PcieDeviceType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PcieNode {
    /// A GPU.
    Gpu {
        /// CUDA ordinal (`devId`).
        device: u32,
        /// The UUID (`uuidDev`).
        uuid: Uuid,
    },
    /// A bridge.
    Bridge {
        /// CUPTI's id (`bridgeId`).
        id: u32,
        /// The bus below it (`secondaryBus`).
        secondary_bus: u16,
        /// Its PCI device id (`deviceId`).
        device_id: u16,
        /// Its PCI vendor id (`vendorId`).
        vendor_id: u16,
    },
    /// A type unknown to this version of the crate.
    Unknown(u32),
}

impl Pcie<'_> {
    /// CUDA ordinals of the devices whose memory a GPU can reach (`peerDev`).
    pub fn peers(&self) -> impl Iterator<Item = u32> + use<> {
        let is_gpu = matches!(self.node, PcieNode::Gpu { .. });
        let fields = Fields::<pcie::Layout, { oldest(pcie::STRIDES) }>::from_raw(self.raw);
        let peers = fields.filter(|_| is_gpu).map(|f| f.get(pcie::ATTR_GPU_ATTR_PEER_DEV));
        // Unused entries hold -1.
        peers.into_iter().flatten().filter(|&peer| peer <= i32::MAX as u32)
    }
}
