//! Functions of SQL on the columns of flow records.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, FixedSizeBinaryArray, Int64Array, StringBuilder, UInt8Array, UInt16Array,
    UInt32Array,
};
use datafusion::arrow::datatypes::{DataType, UInt16Type};
use datafusion::common::cast::{
    as_fixed_size_binary_array, as_int64_array, as_primitive_array, as_uint32_array,
};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::SessionContext;
use linerate_flow::FlowKey;
use linerate_flow::community_id::community_id;

use crate::filter::FLAGS;

/// Adds them to a session. All make text.
pub(crate) fn register(context: &SessionContext) {
    let add =
        |name: &str, arguments: &[DataType], function: fn(&[ArrayRef]) -> Result<ArrayRef>| {
            context.register_udf(create_udf(
                name,
                arguments.to_vec(),
                DataType::Utf8,
                Volatility::Immutable,
                Arc::new(move |arguments| {
                    let columns = ColumnarValue::values_to_arrays(arguments)?;
                    Ok(ColumnarValue::Array(function(&columns)?))
                }),
            ));
        };
    let address = [DataType::UInt32, DataType::FixedSizeBinary(16)];
    let numbers = [DataType::UInt8, DataType::UInt16, DataType::UInt16, DataType::UInt16];
    add("ip", &address, ip);
    add("net", &[&address[..], &[DataType::Int64, DataType::Int64]].concat(), net);
    add("tcp_flags", &[DataType::UInt16], tcp_flags);
    add("community_id", &[&address[..], &address, &numbers].concat(), community_ids);
}

/// `ip(v4, v6)`: an address as text, from the column that has it.
fn ip(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let v4: &UInt32Array = as_uint32_array(&columns[0])?;
    let v6: &FixedSizeBinaryArray = as_fixed_size_binary_array(&columns[1])?;
    let mut text = StringBuilder::new();
    for row in 0..v4.len() {
        if v4.is_valid(row) {
            text.append_value(Ipv4Addr::from(v4.value(row)).to_string());
        } else if v6.is_valid(row) {
            let octets: [u8; 16] = v6.value(row).try_into().unwrap_or_default();
            text.append_value(Ipv6Addr::from(octets).to_string());
        } else {
            text.append_null();
        }
    }
    Ok(Arc::new(text.finish()))
}

/// `net(v4, v6, n, m)`: the first n bits of an IPv4 address, or the first m of an IPv6 address.
fn net(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let v4: &UInt32Array = as_uint32_array(&columns[0])?;
    let v6: &FixedSizeBinaryArray = as_fixed_size_binary_array(&columns[1])?;
    let (bits4, bits6) = (as_int64_array(&columns[2])?, as_int64_array(&columns[3])?);
    let mut text = StringBuilder::new();
    for row in 0..v4.len() {
        let len = |of: &Int64Array, max| of.value(row).clamp(0, max) as u32;
        text.append_option(if v4.is_valid(row) {
            let len = len(bits4, 32);
            let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            Some(format!("{}/{len}", Ipv4Addr::from(v4.value(row) & mask)))
        } else if v6.is_valid(row) {
            let len = len(bits6, 128);
            let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
            let octets: [u8; 16] = v6.value(row).try_into().unwrap_or_default();
            Some(format!("{}/{len}", Ipv6Addr::from(u128::from_be_bytes(octets) & mask)))
        } else {
            None
        });
    }
    Ok(Arc::new(text.finish()))
}

/// `tcp_flags(bits)`: letters of TCP flags, with a point for each that is missing.
fn tcp_flags(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let bits: &UInt16Array = as_primitive_array(&columns[0])?;
    let mut text = StringBuilder::new();
    for bits in bits {
        text.append_option(bits.map(|bits| {
            let letter = |(bit, letter)| if bits >> bit & 1 == 1 { letter } else { '.' };
            FLAGS.chars().enumerate().map(letter).collect::<String>()
        }));
    }
    Ok(Arc::new(text.finish()))
}

/// `community_id(v4, v6, v4, v6, protocol, port, port, icmp)`: the Community ID of a flow by the columns of its tuple.
fn community_ids(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let protocols: &UInt8Array = as_primitive_array(&columns[4])?;
    let number = |column: usize| as_primitive_array::<UInt16Type>(&columns[column]);
    let (source_ports, destination_ports, kinds) = (number(5)?, number(6)?, number(7)?);
    let address = |column: usize, row: usize| -> Result<Option<IpAddr>> {
        let v4: &UInt32Array = as_uint32_array(&columns[column])?;
        let v6 = as_fixed_size_binary_array(&columns[column + 1])?;
        let octets = || <[u8; 16]>::try_from(v6.value(row)).unwrap_or_default();
        let v4 = v4.is_valid(row).then(|| Ipv4Addr::from(v4.value(row)).into());
        Ok(v4.or_else(|| v6.is_valid(row).then(|| octets().into())))
    };
    let value = |of: &UInt16Array, row: usize| of.is_valid(row).then(|| of.value(row));
    let mut text = StringBuilder::new();
    for row in 0..protocols.len() {
        let ends = address(0, row)?.zip(address(2, row)?);
        let id = ends.filter(|_| protocols.is_valid(row)).and_then(|(source, destination)| {
            community_id(&FlowKey {
                source,
                destination,
                source_port: value(source_ports, row),
                destination_port: value(destination_ports, row),
                icmp_type_code: value(kinds, row),
                protocol: protocols.value(row),
                ..FlowKey::default()
            })
        });
        text.append_option(id);
    }
    Ok(Arc::new(text.finish()))
}
