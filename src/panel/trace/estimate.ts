import type { TranslationBundle } from '@jupyterlab/translation';
import type {
  CompressorInfo,
  CompressorSetting,
  ConfigPatch,
  FlagInfo,
  FlagSetting,
  Hello,
  Status
} from '../../protocol/messages.generated';
import { parseLayers, rangesText } from '../../protocol/ranges';

/** How many layers a range text names; 0 when it names none or is no range. */
function countLayers(text: string, existing: readonly number[]): number {
  try {
    return parseLayers(text, existing).length;
  } catch {
    return 0;
  }
}

/** The layers that exist, in words: `1–4`, or `2, 4–6` where some lack it. */
export const layerSpan = (existing: readonly number[]): string => rangesText(existing, '–', ', ') || '–';

/** Arrow's cost of a row besides its values, and of a frame: names, shapes, offsets. Measured on frames. */
export const FRAME_ROW_BYTES = 192;
export const FRAME_BYTES = 2976;

/** From how many bytes a step, or for how few steps within its bound, a recording is a flood. */
const FLOOD_BYTES = 64e6;
const FEW_STEPS = 200;

/** Steps that a bounded recording can hold of such a size; null where it has no bound. */
export function stepsHeld(bytes: number, { recording }: Pick<Status, 'recording'>): number | null {
  const limit = recording?.limit_bytes;
  return limit === undefined || bytes <= 0 ? null : Math.floor(limit / bytes);
}

/** Whether settings send more than a recording is made for. */
export function isFlood(bytes: number, held: number | null): boolean {
  return bytes >= FLOOD_BYTES || (held !== null && held < FEW_STEPS);
}

/** Positions of a sample, as any flag whose sizes are known has them; null before the first traced step. */
export function positionsOf(flags: readonly FlagInfo[]): number | null {
  const known = flags.find(
    info => info.bytes_per_layer !== null && info.features && info.axes[0] === 'position'
  );
  return known?.bytes_per_layer && known.features ? known.bytes_per_layer / (4 * known.features) : null;
}

/**
 * Bytes that one flag is expected to send per training step, or null where the hub did not say enough.
 *
 * It starts from the flag's uncompressed bytes per sample and layer; one micro-batch is assumed.
 */
export function estimateBytes(
  info: FlagInfo,
  setting: FlagSetting,
  positions: number | null,
  replicas = 1
): number | null {
  const layers = countLayers(setting.layers ?? 'all', info.layers);
  const samples = setting.samples === undefined ? 1 : setting.samples;
  const whole =
    info.bytes_per_layer ??
    (info.features && positions !== null && info.axes[0] === 'position'
      ? 4 * positions * info.features
      : null);
  if (whole === null || samples === null) {
    return null;
  }
  const parts = Math.max(1, info.parts.length);
  const retained = keptShare(info, setting, parts, positions);
  if (retained === null) {
    return null;
  }
  // The gradient of a tensor has its shape.
  const copies = (setting.passes ?? ['forward']).length * (setting.replicas === 'all' ? replicas : 1);
  return (copies * layers * (samples * whole * retained + parts * FRAME_ROW_BYTES)) / (setting.every ?? 1);
}

/** Into how many equal tiles (the last may be smaller) features are cut where so many are asked for. */
export function tilesOf(features: number, asked: number): number {
  return features === 0 ? 0 : Math.ceil(features / Math.ceil(features / asked));
}

/** Into how many blocks an axis is cut where at most so many are asked for: their side is a power of two. */
export function blocksOf(positions: number, cells: number): number {
  const side = 2 ** Math.ceil(Math.log2(Math.max(1, positions / cells)));
  return Math.ceil(positions / side);
}

/** Share of the values that a compressor keeps, or null when it cannot be known here. */
function keptShare(
  info: FlagInfo,
  setting: FlagSetting,
  parts: number,
  positions: number | null
): number | null {
  const { name, params = {} } = setting.compressor;
  const features = info.features ?? null;
  switch (name) {
    case 'NoOp':
      return 1;
    case 'Empty':
      return 0;
    case 'Tile': {
      const tiles = Number(params['tiles'] ?? NaN);
      if (features === null || !(tiles >= 1)) {
        return null;
      }
      const widths = info.widths ?? Array.from({ length: parts }, () => features / parts);
      return widths.reduce((sum, width) => sum + tilesOf(width, tiles), 0) / features;
    }
    case 'Projection':
      return features === null ? null : Math.min(1, parts / features);
    case 'Peaks': {
      const cells = Number(params['cells'] ?? NaN);
      return positions === null || !(cells >= 1) ? null : (blocksOf(positions, cells) / positions) ** 2;
    }
    default:
      return null;
  }
}

/** A compressor in one short line: `Tile 96 mean`. */
export function compressorText(setting: CompressorSetting, compressors: readonly CompressorInfo[]): string {
  const title = compressors.find(({ name }) => name === setting.name)?.title ?? setting.name;
  return [title, ...Object.values(setting.params ?? {}).map(value => lastPathPart(String(value)))].join(' ');
}

/** A patch in one line, for "who changed what": `MLP1 output Tile 96 mean; Hidden states off`. */
export function patchText(patch: ConfigPatch, off: string, hello: Hello | null): string {
  const { flags = [], compressors = [] } = hello ?? {};
  const title = (flag: string): string => flags.find(({ name }) => name === flag)?.title ?? flag;
  return Object.entries(patch.flags)
    .map(([flag, setting]) => `${title(flag)} ${setting === null ? off : settingText(setting, compressors)}`)
    .join('; ');
}

/** A setting in one line; defaults are left out. */
function settingText(setting: FlagSetting, compressors: readonly CompressorInfo[]): string {
  const words = [compressorText(setting.compressor, compressors)];
  if (setting.layers !== undefined && setting.layers !== 'all') {
    words.push(`layers ${setting.layers}`);
  }
  if ((setting.every ?? 1) > 1) {
    words.push(`every ${setting.every} steps`);
  }
  if (setting.passes?.includes('backward')) {
    words.push(setting.passes.length > 1 ? 'forward and backward' : 'backward');
  }
  if (setting.replicas === 'all') {
    words.push('all replicas');
  }
  return words.join(', ');
}

/** What a setting of tiles comes to: `64 tiles of 2 features`, and the last size if smaller; or ''. */
export function tilesText(
  { widths = [] }: FlagInfo,
  { name, params = {} }: CompressorSetting,
  trans: TranslationBundle
): string {
  const asked = Number(params['tiles'] ?? NaN);
  if (name !== 'Tile' || !(asked >= 1)) {
    return '';
  }
  return [...new Set(widths)]
    .map(width => {
      const [tiles, size] = [tilesOf(width, asked), Math.ceil(width / asked)];
      const rest = width - size * (tiles - 1);
      return rest === size
        ? trans.__('%1 tiles of %2 features', tiles, size)
        : trans.__('%1 tiles of %2 features, the last of %3', tiles, size, rest);
    })
    .join('; ');
}

const lastPathPart = (text: string): string => text.split('/').pop() ?? text;
