//! Operations per cycle and multiprocessor by architecture, and clocks and bandwidths of boards.

use nvtx::{Dtype, Pipe};

use Dtype::{Bf16, F4, F8, F16, F32, F64, I8, Tf32};

/// Dense operations per cycle and multiprocessor; a multiply-add counts as two.
#[derive(Debug)]
pub(super) struct Architecture {
    pub(super) capability: (u32, u32),
    vector: &'static [(Dtype, u32)],
    tensor: &'static [(Dtype, u32)],
    /// The source of the tensor rates. Vector rates are twice the results per cycle in the table
    /// "Throughput of Native Arithmetic Instructions" of NVIDIA's CUDA C++ Programming Guide,
    /// unless stated otherwise.
    pub(super) source: &'static str,
}

/// Uncertain rates are left out.
pub(super) static ARCHITECTURES: [Architecture; 13] = [
    Architecture {
        capability: (7, 0),
        vector: &[(F64, 64), (F32, 128), (F16, 256)],
        tensor: &[(F16, 1024)],
        source: "NVIDIA Tesla V100 GPU Architecture (WP-08608): 8 tensor cores of 64 multiply-adds",
    },
    Architecture {
        capability: (7, 2),
        vector: &[(F64, 64), (F32, 128), (F16, 256)],
        tensor: &[(F16, 1024), (I8, 2048)],
        source: "NVIDIA Jetson AGX Xavier data sheet: 11 TFLOP/s, 22 TOP/s of 8 multiprocessors at 1.377 GHz",
    },
    Architecture {
        capability: (7, 5),
        vector: &[(F64, 4), (F32, 128), (F16, 256)],
        tensor: &[(F16, 1024), (I8, 2048)],
        source: "NVIDIA Turing GPU Architecture (WP-09183): 8 tensor cores of 64 multiply-adds, twice that of 8 bits",
    },
    Architecture {
        capability: (8, 0),
        vector: &[(F64, 64), (F32, 128), (F16, 512), (Bf16, 256)],
        tensor: &[(F64, 128), (Tf32, 1024), (F16, 2048), (Bf16, 2048), (I8, 4096)],
        source: "NVIDIA A100 Tensor Core GPU Architecture, table 3: 4 tensor cores of 256 multiply-adds",
    },
    Architecture {
        capability: (8, 6),
        vector: &[(F64, 4), (F32, 256), (F16, 256), (Bf16, 256)],
        tensor: &[(Tf32, 512), (F16, 1024), (Bf16, 1024), (I8, 2048)],
        source: "NVIDIA Ampere GA102 GPU Architecture, appendices A and B (RTX 3090, A40)",
    },
    Architecture {
        capability: (8, 7),
        vector: &[(F64, 4), (F32, 256)],
        tensor: &[(I8, 4096)],
        source: "NVIDIA Jetson AGX Orin Series Technical Brief: 170 sparse TOP/s of 16 multiprocessors at 1.3 GHz",
    },
    Architecture {
        capability: (8, 9),
        vector: &[(F64, 4), (F32, 256), (F16, 256), (Bf16, 256)],
        tensor: &[(Tf32, 512), (F16, 1024), (Bf16, 1024), (F8, 2048), (I8, 2048)],
        source: "NVIDIA Ada GPU Architecture, appendix A; L4 and L40S data sheets",
    },
    Architecture {
        capability: (9, 0),
        vector: &[(F64, 128), (F32, 256), (F16, 512), (Bf16, 512)],
        tensor: &[(F64, 256), (Tf32, 2048), (F16, 4096), (Bf16, 4096), (F8, 8192), (I8, 8192)],
        source: "NVIDIA H100 Tensor Core GPU Architecture, table 3",
    },
    Architecture {
        capability: (10, 0),
        vector: &[(F64, 128), (F32, 256), (F16, 512), (Bf16, 512)],
        tensor: &[
            (F64, 128),
            (Tf32, 4096),
            (F16, 8192),
            (Bf16, 8192),
            (F8, 16384),
            (F4, 32768),
            (I8, 16384),
        ],
        source: "NVIDIA HGX B200 data sheet: 37 TFLOP/s of f64, 1.1, 2.25, 4.5 and 9 PFLOP/s dense of 148 multiprocessors",
    },
    Architecture {
        capability: (10, 3),
        vector: &[(F32, 256)],
        tensor: &[(Tf32, 4096), (F16, 8192), (Bf16, 8192), (F8, 16384), (F4, 49152)],
        source: "NVIDIA HGX B300 data sheet: as HGX B200, but for 108 PFLOP/s dense of f4 of 8 GPUs",
    },
    Architecture {
        capability: (11, 0),
        vector: &[(F32, 256)],
        tensor: &[(F8, 16384), (F4, 32768)],
        source: "NVIDIA Jetson AGX Thor data sheet: 2070 sparse TFLOP/s of f4, half of it of f8, of 20 multiprocessors at 1.575 GHz",
    },
    Architecture {
        capability: (12, 0),
        vector: &[(F64, 4), (F32, 256), (F16, 256), (Bf16, 256)],
        tensor: &[(Tf32, 512), (F16, 1024), (Bf16, 1024), (F8, 2048), (F4, 4096), (I8, 2048)],
        source: "NVIDIA RTX Blackwell GPU Architecture and RTX PRO Blackwell GPU Architecture, appendices",
    },
    Architecture {
        capability: (12, 1),
        vector: &[(F32, 256)],
        tensor: &[(F4, 4096)],
        source: "NVIDIA DGX Spark data sheet: 6144 cores, 1 PFLOP/s sparse of f4 of 48 multiprocessors",
    },
];

impl Architecture {
    pub(super) fn from_capability(capability: (u32, u32)) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|architecture| architecture.capability == capability)
    }

    /// All rates of a board of this architecture.
    pub(super) fn rates(&self, board: &str) -> impl Iterator<Item = (Dtype, Pipe, u32)> {
        let halved = self.halves(board);
        let vector = self.vector.iter().map(|&(dtype, rate)| (dtype, Pipe::Vector, rate));
        let tensor = self.tensor.iter().map(move |&(dtype, rate)| {
            let rate = if halved && matches!(dtype, Bf16 | Tf32) { rate / 2 } else { rate };
            (dtype, Pipe::Tensor, rate)
        });
        vector.chain(tensor)
    }

    /// True for boards whose tensor cores accumulate in 32 bits at half the rate. The types bf16
    /// and tf32 always accumulate in 32 bits; f16 can accumulate in 16 bits. Source: appendices of
    /// the GA102, Ada and RTX Blackwell whitepapers; L40 data sheet.
    fn halves(&self, board: &str) -> bool {
        let is_one_of_them = matches!(self.capability, (8, 6) | (8, 9) | (12, 0));
        is_one_of_them && (board.contains("GeForce") || board == "NVIDIA L40")
    }
}

/// Clocks and bandwidth of a board.
#[derive(Debug)]
pub(super) struct Board {
    /// The driver's name of the board.
    name: &'static str,
    /// Highest clock in MHz, for recordings without it.
    pub(super) core_mhz: u32,
    /// The clock in MHz that the data sheet uses for tensor cores, if different.
    pub(super) tensor_mhz: Option<u32>,
    /// GB/s, for recordings without it.
    pub(super) bandwidth: f64,
}

/// Source: data sheets; for H100 table 3 of its whitepaper, which has two boost clocks. For H100
/// NVL, H200 NVL and B200, the clock is derived from the stated bf16 TFLOP/s.
static BOARDS: [Board; 25] = [
    board("Tesla V100-SXM2-16GB", 1530, None, 900.0),
    board("Tesla V100-SXM2-32GB", 1530, None, 900.0),
    board("Tesla V100-PCIE-16GB", 1380, None, 900.0),
    board("Tesla V100-PCIE-32GB", 1380, None, 900.0),
    board("Tesla T4", 1590, None, 320.0),
    board("NVIDIA A100-SXM4-40GB", 1410, None, 1555.0),
    board("NVIDIA A100-SXM4-80GB", 1410, None, 2039.0),
    board("NVIDIA A100-PCIE-40GB", 1410, None, 1555.0),
    board("NVIDIA A100 80GB PCIe", 1410, None, 1935.0),
    board("NVIDIA A10", 1695, None, 600.0),
    board("NVIDIA A40", 1740, None, 696.0),
    board("NVIDIA GeForce RTX 3090", 1695, None, 936.0),
    board("NVIDIA L4", 2040, None, 300.0),
    board("NVIDIA L40", 2490, None, 864.0),
    board("NVIDIA L40S", 2520, None, 864.0),
    board("NVIDIA GeForce RTX 4090", 2520, None, 1008.0),
    board("NVIDIA H100 80GB HBM3", 1980, Some(1830), 3350.0),
    board("NVIDIA H100 PCIe", 1755, Some(1620), 2000.0),
    board("NVIDIA H100 NVL", 1785, Some(1545), 3938.0),
    board("NVIDIA GH200 480GB", 1980, Some(1830), 4000.0),
    board("NVIDIA H200", 1980, Some(1830), 4800.0),
    board("NVIDIA H200 NVL", 1785, Some(1545), 4800.0),
    board("NVIDIA B200", 1965, Some(1856), 7700.0),
    board("NVIDIA GeForce RTX 5090", 2407, None, 1792.0),
    board("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 2617, None, 1792.0),
];

const fn board(
    name: &'static str,
    core_mhz: u32,
    tensor_mhz: Option<u32>,
    gigabytes_a_second: f64,
) -> Board {
    Board { name, core_mhz, tensor_mhz, bandwidth: gigabytes_a_second }
}

impl Board {
    pub(super) fn named(name: &str) -> Option<&'static Board> {
        BOARDS.iter().find(|board| board.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_and_rate_is_listed_once() {
        for (at, architecture) in ARCHITECTURES.iter().enumerate() {
            let rates: Vec<_> = architecture.rates("").map(|(d, p, _)| (d, p)).collect();
            let mut apart = rates.clone();
            apart.sort_unstable();
            apart.dedup();
            assert_eq!(apart.len(), rates.len(), "{architecture:?}");
            assert!(architecture.source.contains("NVIDIA"));
            let of = Architecture::from_capability(architecture.capability);
            assert!(std::ptr::eq(of.unwrap(), &ARCHITECTURES[at]));
        }
        assert!(Architecture::from_capability((6, 0)).is_none());
        for board in &BOARDS {
            assert!(std::ptr::eq(Board::named(board.name).unwrap(), board));
        }
    }
}
