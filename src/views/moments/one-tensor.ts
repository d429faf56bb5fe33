import type { MomentsOptions } from '../../protocol/views.generated';

/** What makes the explorer show one tensor and nothing else. */
export function oneTensor(name: string): Pick<MomentsOptions, 'kind' | 'where'> {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return { kind: 'tensors', where: { name: `^${escaped}$` } };
}
