// What axe-core finds wrong in a page for people who hear it, or see little of it.
const { readFileSync } = require('node:fs');

const source = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

exports.violations = async (page, selectors = [], rules = undefined) => {
  // Evaluated from outside, so that a page whose policy forbids other scripts is looked at as it is.
  if (!(await page.evaluate('"axe" in window'))) {
    await page.evaluate(source);
  }
  const found = await page.evaluate(
    async ([include, runOnly]) =>
      (
        await window.axe.run(include.length > 0 ? { include } : document, {
          // Of what is as it should be nothing is told.
          resultTypes: ['violations'],
          ...(runOnly ? { runOnly } : {})
        })
      ).violations,
    [selectors, rules]
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`)
  );
};
