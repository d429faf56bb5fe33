import type { Perturb, SiteInfo } from '../../protocol/messages.generated';
import { own } from '../../protocol/records';

/**
 * What is done where, one part a site: `MLP output: Additive Gaussian noise, coefficient 0.01, layers 2-3`.
 */
export function perturbText(perturb: Perturb, infos: readonly SiteInfo[]): string {
  return Object.entries(perturb.sites)
    .map(([name, { kind, layers = 'all', phases = ['train'] }]) => {
      const site = infos.find(each => each.name === name);
      const info = site?.kinds.find(each => each.name === kind.name);
      const properties = info?.schema['properties'] as Record<string, { title?: string }> | undefined;
      const words = [
        info?.title ?? kind.name,
        ...Object.entries(kind.params ?? {}).map(
          ([key, value]) => `${(own(properties, key)?.title ?? key).toLowerCase()} ${String(value)}`
        ),
        ...(layers === 'all' ? [] : [`layers ${layers}`]),
        ...(phases.join() === 'train' ? [] : [phases.join(' and ')])
      ];
      return `${site?.title ?? name}: ${words.join(', ')}`;
    })
    .join('; ');
}
