import { fullViewOptions, type FullViewOptions } from './view-options';
import { ProtocolError } from './protocol-error';

/** Saved options of a view, as far as they can be read. */
export interface IKeptOptions {
  readonly options: FullViewOptions;
  /** Names of those that were left out: unknown ones, and those whose value the contract does not take. */
  readonly dropped: readonly string[];
}

/** Most members of saved options that are looked at one by one. */
const MOST = 200;

/**
 * Read options that were saved by somebody: a workspace, a notebook, another version. What cannot be read
 * takes its default, so that one bad value never costs the view.
 *
 * @throws ProtocolError `bad-parameter` when there is no such view, or what it cannot do without (its flag)
 * is not there.
 */
export function keptViewOptions(value: unknown): IKeptOptions {
  try {
    return { options: fullViewOptions(value), dropped: [] };
  } catch (error) {
    const saved = typeof value === 'object' && value !== null ? Object.entries(value) : [];
    const view = saved.find(([name]) => name === 'view')?.[1];
    if (!(error instanceof ProtocolError) || typeof view !== 'string' || saved.length > MOST) {
      throw error;
    }
    // What the view cannot do without; everything else is tried alone, beside it.
    const about = fits({ view }) ? ['view'] : ['view', 'flag'];
    const needed = saved.filter(([name]) => about.includes(name));
    const readable = saved.filter(
      ([name, each]) => !about.includes(name) && fits(Object.fromEntries([...needed, [name, each]]))
    );
    const names = new Set([...needed, ...readable].map(([name]) => name));
    return {
      options: fullViewOptions(Object.fromEntries([...needed, ...readable])),
      dropped: saved.map(([name]) => name).filter(name => !names.has(name))
    };
  }
}

function fits(value: unknown): boolean {
  try {
    fullViewOptions(value);
    return true;
  } catch {
    return false;
  }
}
