import { groupMoments } from '../../aggregate';
import type { IReadBy } from '../../client/run-reader';
import type { IMomentGroups, IMomentIndex, TasksProgress } from '../../store/row-moments';
import { MemoryMoments, grads } from '../../store/__tests__/memory-moments';
import { MomentsPage } from './moments-page';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

/** Rows that are said to be so many that they stay on the server, which answers totals only when it is let. */
class ServerRows extends MemoryMoments {
  readonly limitRows = 1_000_000;
  readonly queries: MomentGroupsRequest[] = [];
  private letGo: (() => void) | null = null;
  private held: Promise<void> = new Promise(resolve => (this.letGo = resolve));
  private refused: Error | null = null;

  override async index(): Promise<IMomentIndex> {
    const index = await super.index();
    return { ...index, stats: index.stats.map(each => ({ ...each, rows: 2_000_000 })) };
  }

  override async groups(query: MomentGroupsRequest): Promise<IMomentGroups> {
    this.queries.push(query);
    if (query.statistic === 'nonfinite' && query.by.length === 0) {
      await this.held;
      if (this.refused) {
        throw this.refused;
      }
    }
    return groupMoments(this.local(), query);
  }

  release(refused: Error | null = null): void {
    this.refused = refused;
    this.letGo?.();
  }

  /** Its questions are answered by a cluster. */
  readBy: IReadBy | null = null;
  told: TasksProgress | null = null;

  watchTasks(told: TasksProgress): () => void {
    this.told = told;
    return () => (this.told = null);
  }

  /** The next totals are held again. */
  hold(): void {
    this.refused = null;
    this.held = new Promise(resolve => (this.letGo = resolve));
  }

  private local(): MemoryMoments {
    const rows = new MemoryMoments();
    rows.index = () => super.index();
    rows.rows = (...asked) => super.rows(...asked);
    return rows;
  }
}

let page: MomentsPage;
let rows: ServerRows;
beforeEach(() => {
  page = new MomentsPage();
  rows = new ServerRows();
  page.run.moments = rows;
});
afterEach(() => {
  rows.release();
  page.close();
});

async function until(what: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500 && !what(); turn += 1) {
    await new Promise(resolve => setTimeout(resolve, 10));
  }
  expect(what()).toBe(true);
}

describe('lines of very many rows', () => {
  const bad = { step: 7, name: 'decoder.layers.1.mlp.linear_fc2.weight', nan: 12, samples: 112 };

  it('are drawn before their total is known, which is asked afterwards, and then named what is not finite', async () => {
    page.run.log(...grads(2, 6), bad);
    const shown = page.show({ by: ['layer'] });
    let isSettled = false;
    void shown.then(() => (isSettled = true));
    await until(() => page.lines() === 3);
    expect(page.title()).toBe('Gradient L2 by layer, steps 1 to 7');
    // A value that is not finite is in sight at once.
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-rect path[fill="#ff2bd6"]')).toHaveLength(1);
    await until(() => rows.queries.length === 2);
    expect(rows.queries.map(({ by, statistic }) => [by, statistic])).toEqual([
      [['layer'], 'l2'],
      [[], 'nonfinite']
    ]);
    expect(rows.asked).toBe(1);
    expect(page.text('.jp-MegalensNote')).toBe('');
    expect(isSettled).toBe(false);
    rows.release();
    await shown;
    expect(page.text('.jp-MegalensNote')).toContain('First non-finite gradients: step 7');
    // The lines are not asked for twice.
    expect(rows.queries.filter(({ by }) => by.includes('layer'))).toHaveLength(1);
  });

  it('wait for their total where samples are on the axis', async () => {
    page.run.log(...grads(2, 6));
    const shown = page.show({ by: ['layer'], x: 'samples' });
    await until(() => rows.queries.length === 1);
    expect(rows.queries[0]?.statistic).toBe('nonfinite');
    rows.release();
    await shown;
    expect(page.lines()).toBe(3);
  });

  it('give way to an error where the total fails, and come again with it', async () => {
    page.run.log(...grads(2, 6));
    const shown = page.show({ by: ['layer'] });
    await until(() => page.lines() === 3);
    rows.release(new Error('The disk is gone.'));
    await shown;
    expect(page.state()).toContain('The disk is gone.');
    rows.hold();
    rows.release();
    await page.click('Try again');
    expect(page.lines()).toBe(3);
  });

  it('offer what their names have once the picture is there', async () => {
    const experts = Array.from({ length: 2100 }, (_, at) => `layers.0.mlp.experts.${at}.weight`);
    page.run.log(...experts.map(name => ({ step: 1, name, samples: 16 })));
    rows.release();
    await page.show({ by: ['layer'] });
    const offered = (): (string | null)[] =>
      [...page.control<HTMLSelectElement>('by', 'select').options].map(each => each.textContent);
    await until(() => offered().includes('expert'));
  });
});

describe('rows that a cluster reads', () => {
  const where = { address: 'tcp://10.0.0.1:8786', workers: 4 };

  it('are waited for with a sentence on how far it is, and are drawn with where they were read', async () => {
    page.run.log(...grads(2, 6));
    rows.readBy = where;
    const shown = page.show({ kind: 'table' });
    await until(() => rows.told !== null);
    rows.told?.(3, 1250, where);
    expect(page.state()).toContain('Read by 4 workers at tcp://10.0.0.1:8786. 3 of 1 250 tasks are done…');
    expect(page.button('Cancel')).toBeDefined();
    rows.release();
    await shown;
    expect(page.caption()).toContain('Read by 4 workers at tcp://10.0.0.1:8786.');
    expect(rows.told).toBeNull();
  });
});
