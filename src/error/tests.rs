use super::*;

/// Every error there is, with values that are easy to find in its sentence. The match has no `_`, so a new
/// variant does not compile before it stands here.
fn every_error() -> Vec<Error> {
    let device = DLDevice { device_type: 71, device_id: 72 };
    let wanted = DLDevice { device_type: 73, device_id: 74 };
    let found = DLDataType { code: 81, bits: 82, lanes: 83 };
    let target = DLDataType { code: 84, bits: 85, lanes: 86 };
    let text = Excerpt::new(b"<f4\n\xff");
    let mut all = vec![
        Error::ReadOnly,
        Error::WriteToReadOnly { flags: 0x41 },
        Error::NotImmutable { why: "whoever lent it may still write it" },
        Error::WritersAlive { writable: 42 },
        Error::ImmutablesAlive { immutable: 43 },
        Error::TooManyTensors { most: 44 },
        Error::ExportReadOnlyAsLegacy,
        Error::Version { found: DLPackVersion { major: 45, minor: 46 } },
        Error::ExchangeVersion { found: DLPackVersion { major: 94, minor: 95 } },
        Error::Dtype { found, why: "has no lanes" },
        Error::DtypesDiffer { source: found, target },
        Error::PaddingDiffers,
        Error::FileDtype { descr: text, why: "is text; DLPack has numbers only" },
        Error::HostCannotRead { device },
        Error::DeviceNotWanted { device, wanted },
        Error::DeviceId { device },
        Error::Overlap,
        Error::NullStrides { minor: 47 },
        Error::ShapesDiffer { axis: 48, source: 49, target: 50 },
        Error::RanksDiffer { source: 51, target: 52 },
        Error::Null { what: "out" },
        Error::NullShape { ndim: 53 },
        Error::NullData { nbytes: 54 },
        Error::UnknownValue { what: "access", found: 55 },
        Error::StructSize { what: "options", found: 56, least: 57 },
        Error::UnknownTail { what: "options", offset: 58 },
        Error::AlignmentNotPowerOfTwo { found: 59 },
        Error::NotOurs { what: "the tensor" },
        Error::NotUtf8 { what: "the label" },
        Error::ExchangeSlotNull { slot: "managed_tensor_allocator" },
        Error::NullElement { what: "names", index: 96 },
        Error::Name { name: text, why: "is there twice" },
        Error::NoSuchIndex { what: "tensors", index: 97, count: 98 },
        Error::Ndim { found: -60, most: 61 },
        Error::NegativeDimension { axis: 62, value: -63 },
        Error::Overflow { what: "the tensor's size or extent in bytes" },
        Error::AddressWraps { data: 0x64, byte_offset: 65 },
        Error::HandlesDiffer,
        Error::OutOfMemoryRange { low: -66, high: 67, nbytes: 68 },
        Error::NoMemory { nbytes: 69 },
        Error::Io { call: "open", errno: libc::ENOENT },
        Error::Io { call: "mmap", errno: 99_999 },
        Error::NotRegularFile,
        Error::Format { offset: 70, expected: "a Python dict", found: text },
        Error::FileTooShort { expected: 91, found: 90 },
        Error::FileTooLong { expected: 99, found: 100 },
        Error::TensorPlace { name: text, begin: 101, expected: 102 },
        Error::TensorExtent { name: text, found: 103, expected: 104 },
        Error::TensorPartByte { name: text, bits: 105 },
        Error::HeaderTooLong { most: 106 },
        Error::NotReplaceable,
        Error::Unsupported { what: "sealed memory" },
        Error::Panicked,
    ];
    all.extend(
        [
            Unmet::Writable,
            Unmet::NoOverlap,
            Unmet::RowMajor,
            Unmet::ColumnMajor,
            Unmet::NonNegativeStride { dim: 94, stride: -95 },
            Unmet::Alignment { wanted: 92, address: 0x93 },
            Unmet::Always,
        ]
        .map(|wanted| Error::MustCopy { wanted }),
    );
    for error in &all {
        match error {
            Error::ReadOnly | Error::WriteToReadOnly { .. } | Error::NotImmutable { .. } => {}
            Error::WritersAlive { .. } | Error::ImmutablesAlive { .. } | Error::TooManyTensors { .. } => {}
            Error::ExportReadOnlyAsLegacy
            | Error::Version { .. }
            | Error::ExchangeVersion { .. }
            | Error::Dtype { .. } => {}
            Error::DtypesDiffer { .. } | Error::PaddingDiffers | Error::FileDtype { .. } => {}
            Error::HostCannotRead { .. } | Error::DeviceNotWanted { .. } | Error::DeviceId { .. } => {}
            Error::Overlap | Error::NullStrides { .. } => {}
            Error::ShapesDiffer { .. } | Error::RanksDiffer { .. } | Error::Null { .. } => {}
            Error::NullShape { .. } | Error::NullData { .. } | Error::UnknownValue { .. } => {}
            Error::StructSize { .. } | Error::UnknownTail { .. } | Error::AlignmentNotPowerOfTwo { .. } => {}
            Error::NotOurs { .. } | Error::NotUtf8 { .. } | Error::ExchangeSlotNull { .. } | Error::Ndim { .. } => {}
            Error::NullElement { .. } | Error::Name { .. } | Error::NoSuchIndex { .. } => {}
            Error::NegativeDimension { .. } | Error::Overflow { .. } | Error::AddressWraps { .. } => {}
            Error::HandlesDiffer | Error::OutOfMemoryRange { .. } | Error::NoMemory { .. } => {}
            Error::Io { .. } | Error::NotRegularFile | Error::Format { .. } | Error::FileTooShort { .. } => {}
            Error::FileTooLong { .. } | Error::TensorPlace { .. } | Error::TensorExtent { .. } => {}
            Error::TensorPartByte { .. } | Error::HeaderTooLong { .. } | Error::NotReplaceable => {}
            Error::Unsupported { .. } | Error::Panicked => {}
            Error::MustCopy { wanted } => match wanted {
                Unmet::Writable | Unmet::NoOverlap | Unmet::RowMajor | Unmet::ColumnMajor => {}
                Unmet::NonNegativeStride { .. } | Unmet::Alignment { .. } | Unmet::Always => {}
            },
        }
    }
    all
}

/// The numbers in a value as `Debug` shows them, or in a sentence.
fn numbers(text: &str) -> Vec<i128> {
    let mut numbers = Vec::new();
    for word in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-') {
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        numbers.extend(parsed);
    }
    numbers
}

/// Read them with `cargo test sentences -- --nocapture`.
#[test]
fn every_error_is_one_sentence_with_its_values_in_it() {
    for error in every_error() {
        let sentence = error.to_string();
        println!("{:<24} {sentence}", error.status().name().to_str().unwrap());
        let said = numbers(&sentence);
        for value in numbers(&format!("{error:?}")) {
            assert!(said.contains(&value), "{value} is not in: {sentence}");
        }
        assert!(
            !sentence.is_empty() && sentence == sentence.trim() && !sentence.contains(['\n', '\r']),
            "{sentence:?}"
        );
        assert!(!sentence.ends_with('.') && !sentence.contains("  ") && !sentence.contains(". "), "{sentence}");
        assert!(sentence.is_ascii() && sentence.len() < 256, "{sentence}");
        assert_ne!(error.status(), Status::DLRO_OK);
    }
}

#[test]
fn a_quotation_from_a_file_is_escaped_and_says_that_it_was_cut() {
    assert_eq!(format!("{:?}", Excerpt::new(b"a'\n\xff\0")), r"'a\'\n\xff\x00'");
    assert_eq!(format!("{:?}", Excerpt::new(&[b'x'; Excerpt::MAX])), format!("'{}'", "x".repeat(Excerpt::MAX)));
    assert_eq!(format!("{:?}", Excerpt::new(&[b'x'; Excerpt::MAX + 1])), format!("'{}'...", "x".repeat(Excerpt::MAX)));
    assert_eq!(format!("{:?}", Excerpt::new(b"")), "''");
}

#[test]
#[cfg_attr(miri, ignore = "Miri's strerror_r has words of its own")]
fn the_systems_reason_is_in_its_own_words_with_the_number() {
    assert_eq!(Error::Io { call: "open", errno: libc::ENOENT }.to_string(), {
        let reason = std::io::Error::from_raw_os_error(libc::ENOENT).to_string();
        format!("open failed: {}", reason.replace("os error", "errno"))
    });
}

#[test]
fn status_numbers_are_unique_and_sorted_into_families() {
    for (index, status) in Status::ALL.into_iter().enumerate() {
        let number = status as i32;
        assert!(Status::ALL[..index].iter().all(|&before| (before as i32) < number), "{status:?}");
        assert_eq!(status.name().to_str().unwrap(), format!("{status:?}"));
        assert_eq!(status.is_exchange_error(), (1..100).contains(&number));
    }
    let unused = Status::ALL.iter().skip(1).find(|&&status| every_error().iter().all(|error| error.status() != status));
    assert_eq!(unused, None, "a status that no error has");
}
