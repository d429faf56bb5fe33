import type { TranslationBundle } from '@jupyterlab/translation';
import type {
  CompressorSetting,
  ConfigPatch,
  FlagInfo,
  FlagSetting,
  Hello,
  Status
} from '../../protocol/messages.generated';
import { rangesText } from '../../protocol/ranges';
import { compressorWords, titleWords } from '../../views/shared/describe';
import { tilesOf } from '../../views/shared/forecast';
import { translateBy } from '../../views/shared/translate';

/** The layers that exist, in words: `1–4`, or `2, 4–6` where some lack it. */
export const layerSpan = (existing: readonly number[]): string => rangesText(existing, '–', ', ') || '–';

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

/** A compressor in one short line, as captions of views have it: `mean of 96 tiles`. */
export function compressorText(
  { name, params = {} }: CompressorSetting,
  { compressors = [] }: Partial<Pick<Hello, 'compressors'>>,
  trans: TranslationBundle
): string {
  const values = Object.entries(params).map(([key, value]) => [key, lastPathPart(String(value))] as const);
  const code = `${name}(${values.map(each => each.join('=')).join(', ')})`;
  const words = compressorWords(code, translateBy(trans));
  // One of another package, or with nothing to set, has a title.
  const known = compressors.find(each => each.name === name)?.title;
  const title = known === undefined ? name : titleWords(known, translateBy(trans));
  return words === code || values.length === 0
    ? [title, ...values.map(([, value]) => value)].join(' ')
    : words;
}

/** A patch in one line, for "who changed what": `MLP1 output mean of 96 tiles; Hidden states off`. */
export function patchText(patch: ConfigPatch, hello: Hello | null, trans: TranslationBundle): string {
  const { flags = [] } = hello ?? {};
  const title = (flag: string): string =>
    titleWords(flags.find(({ name }) => name === flag)?.title ?? flag, translateBy(trans));
  return Object.entries(patch.flags)
    .map(
      ([flag, setting]) =>
        `${title(flag)} ${setting === null ? trans.__('off') : settingText(setting, hello ?? {}, trans)}`
    )
    .join('; ');
}

/** A setting in one line; defaults are left out. */
function settingText(setting: FlagSetting, hello: Partial<Hello>, trans: TranslationBundle): string {
  const words = [compressorText(setting.compressor, hello, trans)];
  if (setting.layers !== undefined && setting.layers !== 'all') {
    words.push(trans.__('layers %1', setting.layers));
  }
  if ((setting.every ?? 1) > 1) {
    words.push(trans.__('every %1 steps', setting.every));
  }
  if (setting.passes?.includes('backward')) {
    words.push(setting.passes.length > 1 ? trans.__('forward and backward') : trans.__('backward'));
  }
  if (setting.replicas === 'all') {
    words.push(trans.__('all replicas'));
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
      const text =
        rest === size
          ? trans.__('%1 tiles of %2 features', tiles, size)
          : trans.__('%1 tiles of %2 features, the last of %3', tiles, size, rest);
      return tiles < asked ? trans.__('%1: not %2, tiles are of one size', text, asked) : text;
    })
    .join('; ');
}

const lastPathPart = (text: string): string => text.split('/').pop() ?? text;
