import { parseName } from '../../protocol/tensor-name';
import type { MomentFilter, StatisticsOptions } from '../../protocol/views.generated';
import type { MomentStat } from '../../store/row-moments';

/** What makes the explorer show one tensor and nothing else. */
export function oneTensor(
  name: string
): Pick<StatisticsOptions, 'kind'> & { where: MomentFilter & { name: string } } {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return { kind: 'tensors', where: { name: `^${escaped}$` } };
}

/** The tensor that a filter of names lets through, where it is made of one; else null. */
export function tensorOf(pattern: string): string | null {
  const name = pattern.slice(1, -1).replace(/\\(.)/g, '$1');
  return oneTensor(name).where.name === pattern ? name : null;
}

/** What the filters offer: what there is among the names of what was measured. */
export interface INameFacts {
  readonly family: readonly string[];
  readonly kind: readonly string[];
  readonly stack: readonly string[];
  readonly layers: readonly number[];
  readonly hasRoles: boolean;
  readonly hasExperts: boolean;
}

/** Most suggestions of a field. */
const MOST = 200;

/** Read names once, and again only when there are more. */
export class NameFacts {
  /** Whether these were read last. */
  knows(names: readonly string[], stat: MomentStat): boolean {
    return this._facts !== null && this._count === names.length && this._stat === stat;
  }

  /** What the names of one stat say. Parameters and their gradients have no role, all but casts has one. */
  of(names: readonly string[], stat: MomentStat): INameFacts {
    if (this._facts === null || !this.knows(names, stat)) {
      this._count = names.length;
      this._stat = stat;
      const sites = stat !== 'param' && stat !== 'grad';
      const parsed = names
        .map(parseName)
        .filter(each => each.kind.includes(':') || (each.role !== null) === sites);
      const words = (read: (name: ReturnType<typeof parseName>) => string): string[] =>
        [...new Set(parsed.map(read))].sort().slice(0, MOST);
      this._facts = {
        family: words(each => each.family),
        kind: words(each => each.kind),
        stack: words(each => each.stack),
        layers: [...new Set(parsed.flatMap(each => (each.layer === null ? [] : [each.layer])))].sort(
          (a, b) => a - b
        ),
        hasRoles: parsed.some(each => each.role !== null),
        hasExperts: parsed.some(each => each.expert !== null)
      };
    }
    return this._facts;
  }

  private _facts: INameFacts | null = null;
  private _count = -1;
  private _stat: MomentStat | null = null;
}
