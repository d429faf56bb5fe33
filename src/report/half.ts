import type { IMatrix } from '../charts/pixels';
import type { IFrameData } from './payload';

/** Read one IEEE half float. */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) {
    return fraction ? NaN : sign * Infinity;
  }
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** Whether this browser can unpack frames. */
export const canUnpack = (): boolean => typeof DecompressionStream === 'function';

/** Unpack the matrices of one step, by layer. High bytes come first, then low bytes, which deflates better. */
export async function unpack(frame: IFrameData): Promise<Map<number, IMatrix>> {
  const packed = Uint8Array.from(atob(frame.data), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const half = bytes.length / 2;
  const unit = 2 ** -frame.exponent;
  const matrices = new Map<number, IMatrix>();
  let at = 0;
  for (const { layer, rows, columns } of frame.matrices) {
    const values = new Float32Array(rows * columns);
    for (let cell = 0; cell < values.length; cell++, at++) {
      values[cell] = fromHalf(((bytes[at] ?? 0) << 8) | (bytes[half + at] ?? 0)) * unit;
    }
    matrices.set(layer, { rows, columns, values });
  }
  return matrices;
}
