"""The instruments that come with Megalens, each a complete slice, found as those of other packages."""
