import type { MomentFilter, MomentsOptions } from '../../protocol/views.generated';

/** What makes the explorer show one tensor and nothing else. */
export function oneTensor(
  name: string
): Pick<MomentsOptions, 'kind'> & { where: MomentFilter & { name: string } } {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return { kind: 'tensors', where: { name: `^${escaped}$` } };
}

/** The tensor that a filter of names lets through, where it is made of one; else null. */
export function tensorOf(pattern: string): string | null {
  const name = pattern.slice(1, -1).replace(/\\(.)/g, '$1');
  return oneTensor(name).where.name === pattern ? name : null;
}
