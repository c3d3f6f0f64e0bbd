//! Every combination of what is known and what is asked for, against the table in the header.

use super::*;
use crate::error::Status;

const CPU: DLDevice = DLDevice { device_type: 1, device_id: 0 };
const CUDA: DLDevice = DLDevice { device_type: 2, device_id: 0 };
const CUDA_1: DLDevice = DLDevice { device_type: 2, device_id: 1 };

fn every_facts() -> Vec<Facts> {
    let mut all = Vec::new();
    for bits in 0..1 << 6 {
        for immutable in [Certainty::Yes, Certainty::Obtainable, Certainty::No] {
            for (device, host) in [(CPU, true), (CUDA, false)] {
                for address in [None, Some(0x1000), Some(0x1004), Some(0x1001)] {
                    let bit = |number: u32| bits >> number & 1 == 1;
                    all.push(Facts {
                        writable: bit(0),
                        overlaps: bit(1),
                        row_major: bit(2),
                        column_major: bit(3),
                        negative_stride: bit(4),
                        remappable: bit(5),
                        immutable,
                        address,
                        device,
                        host,
                    });
                }
            }
        }
    }
    all
}

fn every_request() -> Vec<Request> {
    let mut all = Vec::new();
    for access in [Access::Read, Access::Write, Access::Immutable] {
        for copy in [Copy::IfNeeded, Copy::Never, Copy::Always] {
            for layout in [Layout::Any, Layout::RowMajor, Layout::ColumnMajor, Layout::NonNegative] {
                for alignment in [0, 1, 4, 64, 0x1000, 1 << 30] {
                    let cpu = Wanted::Device(CPU);
                    for device in [Wanted::Anywhere, cpu, Wanted::Device(CUDA), Wanted::Device(CUDA_1)] {
                        for host in [false, true] {
                            all.push(Request { access, copy, layout, alignment, device, host });
                        }
                    }
                }
            }
        }
    }
    all
}

/// One row of the header's table, top to bottom, and what repairs it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Row {
    Device,
    WriteToReadOnly,
    WriteToOverlap,
    Layout,
    Alignment,
    Immutable,
}

fn unmet_rows(facts: &Facts, request: &Request) -> Vec<Row> {
    let device = match request.device {
        Wanted::Anywhere => false,
        Wanted::Device(device) => {
            (device.device_type, device.device_id) != (facts.device.device_type, facts.device.device_id)
        }
    };
    let device = device || request.host && !facts.host;
    let layout = match request.layout {
        Layout::Any => false,
        Layout::RowMajor => !facts.row_major,
        Layout::ColumnMajor => !facts.column_major,
        Layout::NonNegative => facts.negative_stride,
    };
    let misaligned = request.alignment != 0 && facts.address.is_some_and(|address| address % request.alignment != 0);
    let write = request.access == Access::Write;
    let immutable = request.access == Access::Immutable && facts.immutable != Certainty::Yes;
    [
        (device, Row::Device),
        (write && !facts.writable, Row::WriteToReadOnly),
        (write && facts.overlaps, Row::WriteToOverlap),
        (layout, Row::Layout),
        (misaligned, Row::Alignment),
        (immutable, Row::Immutable),
    ]
    .into_iter()
    .filter_map(|(unmet, row)| unmet.then_some(row))
    .collect()
}

/// The header's table as a list of rows: repairs from cheap to dear, then the refusal.
fn expected(facts: &Facts, request: &Request) -> core::result::Result<Plan, Status> {
    let rows = unmet_rows(facts, request);
    if rows.contains(&Row::Device) {
        return Err(Status::DLRO_ERR_DEVICE);
    }
    let copy = if facts.host { Ok(Plan::Copy) } else { Err(Status::DLRO_ERR_DEVICE) };
    match (request.copy, &rows[..]) {
        (Copy::Always, _) => copy,
        (_, []) => Ok(Plan::Alias),
        (Copy::Never, [Row::WriteToReadOnly, ..]) => Err(Status::DLRO_ERR_READ_ONLY),
        // Whether it can be frozen only the memory knows; it answers with the reason, and nothing else is done.
        (Copy::Never, [Row::Immutable]) => Ok(Plan::MakeImmutable),
        (Copy::Never, _) => Err(Status::DLRO_ERR_COPY_NEEDED),
        (_, [Row::Immutable]) if facts.immutable == Certainty::Obtainable => Ok(Plan::MakeImmutable),
        (_, [Row::WriteToReadOnly]) if facts.remappable => Ok(Plan::Remap),
        (_, _) => copy,
    }
}

#[test]
fn every_combination_obeys_the_headers_table() {
    let (all_facts, all_requests) = (every_facts(), every_request());
    let step = if cfg!(miri) { 97 } else { 1 };
    for facts in all_facts.iter().step_by(step) {
        for request in &all_requests {
            let planned = plan(facts, request).map_err(|error| error.status());
            assert_eq!(planned, expected(facts, request), "{facts:?} {request:?}");
        }
    }
}

#[test]
fn nothing_read_only_is_ever_aliased_or_frozen_for_a_writer() {
    for facts in every_facts().iter().filter(|facts| !facts.writable || facts.overlaps) {
        for request in every_request().iter().filter(|request| request.access == Access::Write) {
            let planned = plan(facts, request);
            assert!(!matches!(planned, Ok(Plan::Alias | Plan::MakeImmutable)), "{facts:?} {request:?}");
        }
    }
}

#[test]
fn never_means_no_new_memory_and_always_means_new_memory() {
    for facts in every_facts() {
        for request in every_request() {
            match (request.copy, plan(&facts, &request)) {
                (Copy::Never, Ok(plan)) => assert!(!matches!(plan, Plan::Copy | Plan::Remap)),
                (Copy::Always, Ok(plan)) => assert_eq!(plan, Plan::Copy),
                _ => {}
            }
        }
    }
}

const PLAIN: Facts = Facts {
    writable: true,
    immutable: Certainty::No,
    overlaps: false,
    row_major: true,
    column_major: false,
    negative_stride: false,
    address: Some(0x1000),
    device: CPU,
    host: true,
    remappable: false,
};

fn refusal(facts: Facts, request: Request) -> String {
    plan(&facts, &request).unwrap_err().to_string()
}

#[test]
fn the_default_request_takes_everything_as_it_is() {
    for facts in every_facts() {
        assert_eq!(plan(&facts, &Request::default()), Ok(Plan::Alias));
    }
}

#[test]
fn a_read_only_mapping_is_mapped_again_for_a_writer_but_not_where_a_copy_is_needed_anyway() {
    let mapped = Facts { writable: false, remappable: true, ..PLAIN };
    let write = Request { access: Access::Write, ..Request::default() };
    assert_eq!(plan(&mapped, &write), Ok(Plan::Remap));
    assert_eq!(plan(&mapped, &Request { layout: Layout::ColumnMajor, ..write }), Ok(Plan::Copy));
    assert_eq!(plan(&Facts { overlaps: true, ..mapped }, &write), Ok(Plan::Copy));
    assert_eq!(plan(&Facts { remappable: false, ..mapped }, &write), Ok(Plan::Copy));
}

#[test]
fn the_first_unmet_requirement_names_the_error_with_both_sides_values() {
    let never = Request { access: Access::Write, copy: Copy::Never, layout: Layout::ColumnMajor, ..Request::default() };
    let never = Request { alignment: 1 << 20, ..never };
    let all_wrong = Facts { writable: false, overlaps: true, ..PLAIN };
    let tail = "; only a copy would do, and the copy policy is NEVER";
    for (facts, request, sentence) in [
        (all_wrong, never, "write access is required, and the tensor is read-only"),
        (
            Facts { writable: true, ..all_wrong },
            never,
            "write access is required, and elements of the tensor share memory with each other",
        ),
        (PLAIN, never, "column-major contiguous layout is required, and the strides differ from it"),
        (
            PLAIN,
            Request { layout: Layout::Any, ..never },
            "an alignment of 1048576 bytes is required, and the first element is at address 0x1000",
        ),
    ] {
        assert_eq!(refusal(facts, request), format!("{sentence}{tail}"));
    }
    let there = Request { device: Wanted::Device(CUDA_1), ..never };
    let sentence = "the tensor is on device (type 1, id 0), and (type 2, id 1) is wanted";
    assert_eq!(refusal(all_wrong, there), sentence);
}
