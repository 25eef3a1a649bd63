import { endianness } from "node:os";
import type { Tensor } from "@clutor/core";

/**
 * `tensor` as a NumPy file, format version 1.0, little-endian, row-major.
 *
 * Source: numpy.lib.format. The header is padded so that the numbers start at a multiple of 64 bytes.
 */
export function npy(tensor: Tensor<Float32Array | Int32Array>): Buffer {
  if (endianness() !== "LE") throw new Error("writing .npy files needs a little-endian processor");
  const { shape, values } = tensor;
  const type = values instanceof Float32Array ? "<f4" : "<i4";
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  const fields = `{'descr': '${type}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const prefixBytes = 10;
  const padded = Math.ceil((prefixBytes + fields.length + 1) / 64) * 64 - prefixBytes;
  const header = Buffer.alloc(prefixBytes + padded, " ");
  header.write("\x93NUMPY\x01\x00", "latin1");
  header.writeUInt16LE(padded, 8);
  header.write(fields, prefixBytes, "latin1");
  header.write("\n", header.length - 1);
  return Buffer.concat([header, Buffer.from(values.buffer, values.byteOffset, values.byteLength)]);
}
