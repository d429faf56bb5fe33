import { crc32, inflateSync } from 'zlib';
import type { IPixels } from '../pixels';

/** Read a PNG as this package writes it (RGBA, 8 bits, no filter); checks every chunk. */
export function readPng(bytes: Uint8Array): IPixels {
  const png = Buffer.from(bytes);
  if (png.subarray(0, 8).toString('latin1') !== '\x89PNG\r\n\x1a\n') {
    throw new Error('This is no PNG.');
  }
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < png.length;) {
    const size = png.readUInt32BE(at);
    const end = at + 8 + size;
    if (png.readUInt32BE(end) !== crc32(png.subarray(at + 4, end))) {
      throw new Error('The checksum of a chunk is wrong.');
    }
    chunks.set(png.subarray(at + 4, at + 8).toString('latin1'), png.subarray(at + 8, end));
    at = end + 4;
  }
  const header = chunks.get('IHDR') as Buffer;
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const lines = inflateSync(chunks.get('IDAT') as Buffer);
  const data = new Uint8ClampedArray(4 * width * height);
  for (let row = 0; row < height; row += 1) {
    data.set(lines.subarray(row * (4 * width + 1) + 1, (row + 1) * (4 * width + 1)), row * 4 * width);
  }
  return { width, height, data };
}

/** Read the picture of a data URL. */
export function readPicture(url: unknown): IPixels {
  return readPng(Buffer.from(String(url).replace('data:image/png;base64,', ''), 'base64'));
}
