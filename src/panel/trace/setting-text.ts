import type { CompressorSetting, ConfigPatch, FlagSetting } from '../../protocol/messages.generated';

/** A compressor in one short line: `Tile 96 mean`. */
export function compressorText(setting: CompressorSetting, title = setting.name): string {
  return [title, ...Object.values(setting.params ?? {}).map(value => lastPathPart(String(value)))].join(' ');
}

/** A patch in one line, for "who changed what": `MLP1_mat_mul Tile 96 mean; QKV_mat_mul off`. */
export function patchText(patch: ConfigPatch, off: string): string {
  return Object.entries(patch.flags)
    .map(([flag, setting]) => `${flag} ${setting === null ? off : settingText(setting)}`)
    .join('; ');
}

/** A setting in one line; defaults are left out. */
export function settingText(setting: FlagSetting): string {
  const words = [compressorText(setting.compressor)];
  if (setting.layers !== undefined && setting.layers !== 'all') {
    words.push(`layers ${setting.layers}`);
  }
  if ((setting.every ?? 1) > 1) {
    words.push(`every ${setting.every}`);
  }
  if (setting.passes?.includes('backward')) {
    words.push(setting.passes.length > 1 ? 'forward and backward' : 'backward');
  }
  if (setting.replicas === 'all') {
    words.push('all replicas');
  }
  return words.join(', ');
}

function lastPathPart(text: string): string {
  return text.split('/').pop() ?? text;
}
