import type {
  CompressorInfo,
  CompressorSetting,
  FlagInfo,
  FlagSetting,
  Phase
} from '../../protocol/messages.generated';
import { parseLayers } from '../../protocol/ranges';
import { own } from '../../protocol/records';
import { schemaDefaults } from '../../protocol/schema-check';

/** Flags that can be traced at all. */
export const isAvailable = (info: FlagInfo): boolean => info.reason === undefined && info.layers.length > 0;

/** A flag's setting when switched on: what the run suggests, else the first complete compressor. */
export function firstSetting(
  info: FlagInfo | undefined,
  compressors: readonly CompressorInfo[],
  phase: Phase = 'train'
): FlagSetting | null {
  // Each sample of a model that writes text is a text of its own.
  const others: Partial<FlagSetting> = phase === 'train' ? {} : { phases: [phase], samples: null };
  if (info?.compressor !== undefined) {
    return { compressor: info.compressor, ...others };
  }
  const choice =
    compressors.find(each =>
      requiredOf(each).every(name => own(schemaDefaults(each.schema), name) !== undefined)
    ) ?? compressors[0];
  return choice === undefined ? null : { compressor: compressorWithDefaults(choice), ...others };
}

/** A compressor, or whatever else is chosen by name, with the defaults of its parameters. */
export function compressorWithDefaults(info: Pick<CompressorInfo, 'name' | 'schema'>): CompressorSetting {
  return { name: info.name, params: schemaDefaults(info.schema) };
}

/** How many layers a range text names; 0 when it names none or is no range. */
function countLayers(text: string, existing: readonly number[]): number {
  try {
    return parseLayers(text, existing).length;
  } catch {
    return 0;
  }
}

/** Arrow's cost of a row besides its values, and of a frame: names, shapes, offsets. Measured on frames. */
export const FRAME_ROW_BYTES = 192;
export const FRAME_BYTES = 2976;

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
  const retained = keptShare(info, setting, whole, positions);
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

/** Share of a sample's bytes that a compressor keeps, or null when it cannot be known here. */
function keptShare(
  info: FlagInfo,
  { compressor: { name, params = {} } }: FlagSetting,
  whole: number,
  positions: number | null
): number | null {
  const parameter = (key: string): number => Number(own(params, key) ?? NaN);
  // The last axis of attention probabilities are the keys.
  const across = info.features ?? positions;
  const parts = Math.max(1, info.parts.length);
  const { features } = info;
  const each = features ? Array.from({ length: parts }, () => features / parts) : [positions ?? NaN];
  const widths = info.widths ?? each;
  const tiles = (asked: number): number => widths.reduce((sum, width) => sum + tilesOf(width, asked), 0);
  const known = (share: number): number | null => (Number.isFinite(share) ? share : null);
  switch (name) {
    case 'NoOp':
      return 1;
    case 'Empty':
      return 0;
    case 'Tile':
      return parameter('tiles') >= 1 && across !== null ? known(tiles(parameter('tiles')) / across) : null;
    case 'Histogram': {
      // Bins of either sign and one for zero, of each tile: however many positions there are.
      const values = tiles(parameter('tiles')) * (2 * parameter('bins') + 1);
      return parameter('tiles') >= 1 ? known((4 * values) / whole) : null;
    }
    case 'Projection':
      return across === null ? null : known(Math.min(1, widths.length / across));
    case 'Peaks': {
      const cells = parameter('cells');
      return positions === null || !(cells >= 1) ? null : (blocksOf(positions, cells) / positions) ** 2;
    }
    default:
      return null;
  }
}

function requiredOf(info: CompressorInfo): string[] {
  const required = (info.schema as { required?: unknown }).required;
  return Array.isArray(required) ? required.filter((name): name is string => typeof name === 'string') : [];
}
