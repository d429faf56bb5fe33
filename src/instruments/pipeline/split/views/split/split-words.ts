import { formatInteger } from '../../../../../charts';
import { familyTitle } from '../../plan/plan-split';
import type { ISplitLane, ISplitPlanned } from '../../plan/split-planned';
import type { ProcessRole } from '../../plan/rank-map';
import type { SplitRequest } from '../../protocol/split.generated';
import type { Translate } from '../../../../../views/shared/translate';

/** What a process does. */
export function roleWords(role: ISplitLane['role'] | ProcessRole, t: Translate): string {
  const words: Readonly<Record<ISplitLane['role'] | ProcessRole, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    both: t('both'),
    coordinator: t('coordinator')
  };
  return words[role];
}

/** A layout in a few words: `Split, 2 stages × 2 replicas, tensor parallel 2`. */
export function layoutWords({ layout }: Pick<ISplitPlanned, 'layout'>, t: Translate): string {
  const { family, stages, data, tensor, forward_tensor: forward = tensor } = layout;
  return [
    familyTitle(family),
    ...(stages.length > 1 ? [t('%1 stages', formatInteger(stages.length))] : []),
    ...(data > 1 ? [t('%1 replicas', formatInteger(data))] : []),
    ...(tensor > 1 ? [t('tensor parallel %1', formatInteger(tensor))] : []),
    ...(forward !== tensor ? [t('forward %1', formatInteger(forward))] : [])
  ].join(', ');
}

/** The devices of a layout: `2 fast, 1 slow`. */
export function deviceWords(devices: readonly number[], { devices: kinds }: SplitRequest): string {
  return devices
    .flatMap((count, at) => (count > 0 ? [`${formatInteger(count)} ${kinds[at]?.name ?? ''}`] : []))
    .join(', ');
}
