//! A tensor in one line for people.

use super::view::Checked;
use crate::abi::*;
use crate::memory::Mutability;
use core::fmt;

/// Prints the line.
pub struct Line<'a> {
    /// The tensor.
    pub checked: Checked<'a>,
    /// What may happen to its memory.
    pub mutability: Mutability,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = &self.checked;
        write!(f, "{} {:?}", checked.dtype, checked.shape)?;
        match checked.strides {
            Some(strides) => write!(f, " strides {strides:?}")?,
            None => f.write_str(" row-major")?,
        }
        match device_name(checked.device.device_type) {
            Some(name) => write!(f, " {name}:{}", checked.device.device_id)?,
            None => write!(f, " device type {}:{}", checked.device.device_type, checked.device.device_id)?,
        }
        f.write_str(match self.mutability {
            Mutability::Writable => " writable",
            Mutability::ReadOnly => " read-only",
            Mutability::Immutable => " immutable",
        })?;
        if checked.flags.contains(Flags::IS_COPIED) {
            f.write_str(" copied")?;
        }
        if checked.is_padded() {
            f.write_str(" padded")?;
        }
        write!(
            f,
            " DLPack {}.{} data {:#x}+{} {} bytes",
            VERSION.major,
            checked.minor,
            checked.data.addr(),
            checked.byte_offset,
            checked.measure.nbytes
        )
    }
}

/// DLPack's name without `kDL`.
fn device_name(device_type: DLDeviceType) -> Option<&'static str> {
    const NAMES: [(DLDeviceType, &str); 16] = [
        (kDLCPU, "CPU"),
        (kDLCUDA, "CUDA"),
        (kDLCUDAHost, "CUDAHost"),
        (kDLOpenCL, "OpenCL"),
        (kDLVulkan, "Vulkan"),
        (kDLMetal, "Metal"),
        (kDLVPI, "VPI"),
        (kDLROCM, "ROCM"),
        (kDLROCMHost, "ROCMHost"),
        (kDLExtDev, "ExtDev"),
        (kDLCUDAManaged, "CUDAManaged"),
        (kDLOneAPI, "OneAPI"),
        (kDLWebGPU, "WebGPU"),
        (kDLHexagon, "Hexagon"),
        (kDLMAIA, "MAIA"),
        (kDLTrn, "Trn"),
    ];
    NAMES.iter().find(|(number, _)| *number == device_type).map(|(_, name)| *name)
}
